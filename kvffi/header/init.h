#define KVFFI_PAIR_OPTIONS_INIT { sizeof(kvffi_pair_options), 0, 0, 0, 0 }
#define KVFFI_REQUEST_INIT { sizeof(kvffi_request), 0, 0, 0, 0, 0, 0 }

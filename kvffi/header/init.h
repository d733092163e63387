#define KVFFI_WORKER_INIT { sizeof(kvffi_worker), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
#define KVFFI_STORAGE_INIT { sizeof(kvffi_storage), 0, 0, 0, 0, 0, 0 }
#define KVFFI_GROUP_INIT { sizeof(kvffi_group), 0, 0, 0, 0 }
#define KVFFI_LAYER_INIT { sizeof(kvffi_layer), 0, 0, 0, 0, 0 }
#define KVFFI_PART_INIT { sizeof(kvffi_part), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
#define KVFFI_PAIR_OPTIONS_INIT { sizeof(kvffi_pair_options), 0, 0, 0, 0 }
#define KVFFI_REQUEST_INIT { sizeof(kvffi_request), 0, 0, 0, 0, 0, 0 }

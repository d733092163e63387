#define KVFFI_WORKER_INIT { sizeof(kvffi_worker), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
#define KVFFI_STORAGE_INIT { sizeof(kvffi_storage), 0, 0, 0, 0, 0, 0 }
#define KVFFI_GROUP_INIT { sizeof(kvffi_group), 0, 0, 0, 0 }
#define KVFFI_LAYER_INIT { sizeof(kvffi_layer), 0, 0, 0, 0, 0 }
#define KVFFI_PART_INIT { sizeof(kvffi_part), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
#define KVFFI_ROWS_INIT { sizeof(kvffi_rows), 0, 0, 0, 0, 0, 0, 0 }
#define KVFFI_PAGE_LAYER_INIT { sizeof(kvffi_page_layer), 0, 0, 0, 0, 0, 0 }
#define KVFFI_ATTENTION_INIT { sizeof(kvffi_attention), 0, 0, 0, 0, 0, 0, 0, 0 }
#define KVFFI_STATE_OPTIONS_INIT { sizeof(kvffi_state_options), 0, 0, 0, 0 }
#define KVFFI_POOL_INIT { sizeof(kvffi_pool), 0, 0, 0, 0, 0, 0, 0 }
#define KVFFI_BLOCKS_INIT { sizeof(kvffi_blocks), 0, 0, 0, 0 }
#define KVFFI_TENSOR_INIT { sizeof(kvffi_tensor), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
#define KVFFI_PAIR_OPTIONS_INIT { sizeof(kvffi_pair_options), 0, 0, 0, 0 }
#define KVFFI_REQUEST_INIT { sizeof(kvffi_request), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
#define KVFFI_LIMITS_INIT { sizeof(kvffi_limits), 0, 0, 0, 0, 0, 0 }
#define KVFFI_AGENT_OPTIONS_INIT { sizeof(kvffi_agent_options), 0, 0, 0, 0, 0, 0, 0, 0, 0 }
#define KVFFI_AGENT_INFO_INIT { sizeof(kvffi_agent_info), 0, 0, 0, 0 }
#define KVFFI_FOREIGN_PEER_INIT { sizeof(kvffi_foreign_peer), 0, 0, 0, 0, 0 }
#define KVFFI_PEER_INFO_INIT { sizeof(kvffi_peer_info), 0, 0, 0, 0, 0, 0, 0, 0 }
#define KVFFI_AGENT_STATS_INIT { sizeof(kvffi_agent_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
#define KVFFI_TRANSFER_OPTIONS_INIT { sizeof(kvffi_transfer_options), 0, 0, 0, 0, 0, 0 }
#define KVFFI_TRANSFER_STATS_INIT { sizeof(kvffi_transfer_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
#define KVFFI_EXCHANGE_OPTIONS_INIT { sizeof(kvffi_exchange_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
#define KVFFI_WANTED_INIT { sizeof(kvffi_wanted), 0, 0, 0, 0 }
#define KVFFI_EVENT_INIT { sizeof(kvffi_event), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
#define KVFFI_EXCHANGE_STATS_INIT { sizeof(kvffi_exchange_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
#define KVFFI_LOG_OPTIONS_INIT { sizeof(kvffi_log_options), 0, 0, 0 }

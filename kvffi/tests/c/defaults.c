/* What the environment is after the library was loaded, and after an agent was asked for. */
#include "check.h"

static const char *value(void)
{
    const char *value = getenv("UCX_LOG_FILE");
    return value == NULL ? "unset" : value;
}

int main(void)
{
    printf("%s", value());
    kvffi_agent_options options = KVFFI_AGENT_OPTIONS_INIT;
    options.library = "/no/such/libnixl_capi.so";
    kvffi_agent *agent = NULL;
    FAILS(KVFFI_ERR_NO_LIBRARY, "/no/such", kvffi_agent_new("a", &options, &agent, &error));
    printf(" %s\n", value());
    return 0;
}

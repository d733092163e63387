/* A child of a process that has an agent on NIXL is told, before a transfer of its own could hang. */
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* An agent on NIXL, with the status of what was asked for. */
static kvffi_status on_nixl(const char *name, kvffi_agent **agent, kvffi_error **error)
{
    return kvffi_agent_new(name, NULL, agent, error);
}

int main(void)
{
    kvffi_agent *parents = NULL;
    OK(on_nixl("parent", &parents, &error));
    for (int shut_down = 0; shut_down < 2; shut_down++) {
        const pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            kvffi_agent *own = NULL;
            FAILS(KVFFI_ERR_FORKED, "NIXL does not survive a fork; exec first", on_nixl("child", &own, &error));
            CHECK(own == NULL);
            FAILS(KVFFI_ERR_FORKED, "agent is a kvffi_agent of the parent process, and of no use in a child",
                  kvffi_agent_deregister(parents, &error));
            /* Nor in a child of the child. */
            const pid_t grandchild = fork();
            CHECK(grandchild >= 0);
            if (grandchild == 0) {
                FAILS(KVFFI_ERR_FORKED, "exec first", on_nixl("grandchild", &own, &error));
                _exit(0);
            }
            int status = 1;
            CHECK(waitpid(grandchild, &status, 0) == grandchild && status == 0);
            _exit(0);
        }
        int status = 1;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        if (shut_down == 0) {
            /* The parent goes on, and what it shuts down its children do not get. */
            kvffi_agent *second = NULL;
            OK(on_nixl("second", &second, &error));
            kvffi_agent_free(second);
            OK(kvffi_agent_shutdown(parents, 1000, &error));
        }
    }
    kvffi_agent_free(parents);
    puts("NIXL is the parent's");
    return 0;
}

/*
 * Logs in to an iSCSI target and writes block after block, a line of output each, until a write fails; then tries to log in again.
 *
 *     writer PORTAL TARGET INITIATOR FIRST_BLOCK BLOCKS
 *
 * "login ok", "login failed: …", "write N good", "write N failed: …", "again ok", "again failed: …".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>

enum { LUN = 1, BLOCK = 512, TIMEOUT_SECONDS = 10 };

static struct iscsi_context *login(char **arg, const char *name) {
    struct iscsi_context *iscsi = iscsi_create_context(arg[3]);
    iscsi_set_targetname(iscsi, arg[2]);
    iscsi_set_session_type(iscsi, ISCSI_SESSION_NORMAL);
    iscsi_set_header_digest(iscsi, ISCSI_HEADER_DIGEST_NONE);
    iscsi_set_noautoreconnect(iscsi, 1);
    iscsi_set_timeout(iscsi, TIMEOUT_SECONDS);
    if (iscsi_full_connect_sync(iscsi, arg[1], LUN)) {
        printf("%s failed: %s\n", name, iscsi_get_error(iscsi));
        return NULL;
    }
    printf("%s ok\n", name);
    return iscsi;
}

int main(int count, char **arg) {
    static unsigned char block[BLOCK];
    if (count != 6) return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct iscsi_context *iscsi = login(arg, "login");
    if (!iscsi) return 1;
    unsigned long first = strtoul(arg[4], NULL, 10), blocks = strtoul(arg[5], NULL, 10);
    for (unsigned long n = 1;; n++) {
        memset(block, 0, sizeof block);
        snprintf((char *)block, sizeof block, "%s wrote %lu", arg[3], n);
        struct scsi_task *task = iscsi_write10_sync(iscsi, LUN, first + n % blocks, block, BLOCK, BLOCK, 0, 0, 0, 0, 0);
        if (!task || task->status) {
            printf("write %lu failed: %s\n", n, iscsi_get_error(iscsi));
            break;
        }
        scsi_free_scsi_task(task);
        printf("write %lu good\n", n);
    }
    iscsi = login(arg, "again");
    return iscsi ? 0 : 1;
}

/* A service that keeps its data on an iSCSI disk, by an initiator in its own process: a block a line, padded with blanks
 * before its end, until a write fails.
 *
 *     store-iscsi PORTAL TARGET INITIATOR NODE
 */
#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
#include <string.h>

#include "store.h"

enum { LUN = 1, BLOCK = 512, BLOCKS = 65536, TIMEOUT_SECONDS = 5 };

static struct scsi_task *good(struct scsi_task *task, struct iscsi_context *iscsi, const char *what) {
    if (task && task->status == SCSI_STATUS_GOOD) return task;
    fprintf(stderr, "store-iscsi: %s: %s\n", what, iscsi_get_error(iscsi));
    exit(1);
}

static int is_free(struct iscsi_context *iscsi, uint32_t block) {
    struct scsi_task *task = iscsi_read10_sync(iscsi, LUN, block, BLOCK, BLOCK, 0, 0, 0, 0, 0);
    int empty = good(task, iscsi, "read")->datain.data[0] == 0;
    scsi_free_scsi_task(task);
    return empty;
}

/* The first block without a line. */
static uint32_t end_of_lines(struct iscsi_context *iscsi) {
    uint32_t low = 0, high = BLOCKS;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (is_free(iscsi, middle)) high = middle;
        else low = middle + 1;
    }
    return low;
}

int main(int count, char **arg) {
    if (count != 5) return 2;
    struct iscsi_context *iscsi = iscsi_create_context(arg[3]);
    unsigned char block[BLOCK];
    iscsi_set_targetname(iscsi, arg[2]);
    iscsi_set_session_type(iscsi, ISCSI_SESSION_NORMAL);
    iscsi_set_header_digest(iscsi, ISCSI_HEADER_DIGEST_NONE);
    iscsi_set_noautoreconnect(iscsi, 1);
    iscsi_set_timeout(iscsi, TIMEOUT_SECONDS);
    if (iscsi_full_connect_sync(iscsi, arg[1], LUN)) {
        fprintf(stderr, "store-iscsi: login: %s\n", iscsi_get_error(iscsi));
        return 1;
    }
    for (uint32_t at = end_of_lines(iscsi);; at++) {
        memset(block, ' ', sizeof block);
        int length = next_line((char *)block, arg[4]);
        block[length - 1] = block[length] = ' ';
        block[BLOCK - 1] = '\n';
        struct scsi_task *task = iscsi_write10_sync(iscsi, LUN, at, block, BLOCK, BLOCK, 0, 0, 0, 0, 0);
        scsi_free_scsi_task(good(task, iscsi, "write"));
        usleep(PACE_US);
    }
}

/* A service that keeps its data on an NFS server, by a client in its own process: it appends to a file until that fails.
 *
 *     store-nfs SERVER EXPORT FILE NODE
 */
#include <fcntl.h>
#include <sys/time.h>
#include <nfsc/libnfs.h>

#include "store.h"

static void must(int error, struct nfs_context *nfs, const char *what) {
    if (error >= 0) return;
    fprintf(stderr, "store-nfs: %s: %s\n", what, nfs_get_error(nfs));
    exit(1);
}

int main(int count, char **arg) {
    if (count != 5) return 2;
    struct nfs_context *nfs = nfs_init_context();
    struct nfsfh *file;
    struct nfs_stat_64 stat;
    char line[LINE];
    nfs_set_version(nfs, 4);
    nfs_set_timeout(nfs, 5000);
    must(nfs_mount(nfs, arg[1], arg[2]), nfs, "mount");
    must(nfs_open(nfs, arg[3], O_RDWR, &file), nfs, "open");
    must(nfs_fstat64(nfs, file, &stat), nfs, "stat");
    for (uint64_t end = stat.nfs_size;;) {
        int length = next_line(line, arg[4]);
        must(nfs_pwrite(nfs, file, end, length, line), nfs, "write");
        end += length;
        usleep(PACE_US);
    }
}

/* Writes blocks to a file on an NFS server until one fails, then mounts anew, and tells each step in a line.
 *
 * writer SERVER EXPORT FILE BLOCKS: "ready" when the file is open, "ok N" for blocks that the server acknowledged,
 * "failed N ERRNO" for the first that it did not, "mount ERRNO" (0: let in) for the new attempt, "done" at the end. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <nfsc/libnfs.h>

enum { BLOCK = 512 };

static struct nfs_context *mounted(const char *server, const char *export, int *error) {
    struct nfs_context *nfs = nfs_init_context();
    nfs_set_version(nfs, 4);
    nfs_set_timeout(nfs, 10000);
    *error = nfs_mount(nfs, server, export);
    return nfs;
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    int error;
    struct nfs_context *nfs = mounted(argv[1], argv[2], &error);
    if (error) { printf("mount %d\n", error); return 1; }
    struct nfsfh *file;
    error = nfs_open2(nfs, argv[3], O_CREAT | O_RDWR, 0644, &file);
    if (error) { printf("open %d\n", error); return 1; }
    puts("ready");
    char block[BLOCK];
    for (long i = 0; i < atol(argv[4]); i++) {
        memset(block, 'a' + (int)(i % 26), BLOCK);
        int wrote = nfs_pwrite(nfs, file, (uint64_t)i * BLOCK, BLOCK, block);
        if (wrote != BLOCK) {
            printf("failed %ld %d\n", i, wrote);
            mounted(argv[1], argv[2], &error);
            printf("mount %d\n", error);
            return 0;
        }
        /* A full pipe would hold up the writing. */
        if (i < 50 || i % 100 == 0) printf("ok %ld\n", i);
    }
    error = nfs_close(nfs, file);
    printf("done %d\n", error);
    return 0;
}

/*
 * A SCSI target for the real sg_persist, on machines whose kernel has none.
 *
 * Preloaded into sg_persist, it answers the SG_IO ioctl of "device files" as SPC-4 says (5.12 and 6.16, 6.17: PERSISTENT
 * RESERVE IN and OUT), so that the program's own arguments, command blocks, sense decoding, exit codes and words are the
 * real ones. A device file stands for one path of one node to one logical unit:
 *
 *     scsi-path
 *     lun /tmp/x/lun0          the file that holds the logical unit's state; flock of LUN.lock orders the commands
 *     nexus heron-1            the initiator port and session
 *     fault hang               optional: hang (no answer, ever), gone (the path fails), once-ua (a unit attention first)
 *
 * The state is text, one line a fact: "gen N", "reg NEXUS KEY", "hold NEXUS TYPE", "aptpl 0|1", "ua NEXUS", and flags that
 * make the target misbehave: "flag noabort" (PREEMPT AND ABORT is an illegal request), "flag noaptpl", "flag nofull"
 * (no READ FULL STATUS), "flag liar" (PREEMPT says GOOD and does nothing), "flag halfhearted" (PREEMPT forgets one of
 * the preempting node's own registrations: the newest). Every PERSISTENT RESERVE OUT goes to the file LUN.log.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <scsi/sg.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { MOST = 64, NAME = 64, GOOD = 0, CHECK = 2, CONFLICT = 0x18 };
enum { REGISTER, RESERVE, RELEASE, CLEAR, PREEMPT, PREEMPT_ABORT, REGISTER_IGNORE };
enum { WRITE_EXCLUSIVE_RO = 5, EXCLUSIVE_RO = 6 };

struct registration { char nexus[NAME]; uint64_t key; };
struct lun {
    uint32_t gen;
    int type, aptpl, regs, uas, flags;
    char holder[NAME];
    struct registration reg[MOST];
    char ua[MOST][NAME];
    char flag[8][NAME];
};
struct path { char lun[512], nexus[NAME], fault[NAME]; };
struct answer { int status, key, asc, ascq; unsigned len; uint8_t data[8192]; };

static int is_path(int fd, struct path *path) {
    char text[1024] = "", *line, *rest;
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    if (n < 10 || strncmp(text, "scsi-path\n", 10)) return 0;
    memset(path, 0, sizeof *path);
    for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        sscanf(line, "lun %511s", path->lun);
        sscanf(line, "nexus %63s", path->nexus);
        sscanf(line, "fault %63s", path->fault);
    }
    return 1;
}

static void load(FILE *file, struct lun *lun) {
    char line[256];
    memset(lun, 0, sizeof *lun);
    while (fgets(line, sizeof line, file)) {
        struct registration *reg = &lun->reg[lun->regs];
        sscanf(line, "gen %" SCNu32, &lun->gen);
        sscanf(line, "aptpl %d", &lun->aptpl);
        sscanf(line, "hold %63s %d", lun->holder, &lun->type);
        if (sscanf(line, "reg %63s %" SCNx64, reg->nexus, &reg->key) == 2) lun->regs++;
        if (sscanf(line, "ua %63s", lun->ua[lun->uas]) == 1) lun->uas++;
        if (sscanf(line, "flag %63s", lun->flag[lun->flags]) == 1) lun->flags++;
    }
}

/* Replaced as a whole: sg_persist may be killed at any moment, and a target does not forget half of what it knows. */
static void store(const char *name, const struct lun *lun) {
    char temporary[520];
    snprintf(temporary, sizeof temporary, "%s.new", name);
    FILE *file = fopen(temporary, "w");
    if (!file) abort();
    fprintf(file, "gen %" PRIu32 "\naptpl %d\n", lun->gen, lun->aptpl);
    for (int i = 0; i < lun->regs; i++) fprintf(file, "reg %s %016" PRIx64 "\n", lun->reg[i].nexus, lun->reg[i].key);
    if (*lun->holder) fprintf(file, "hold %s %d\n", lun->holder, lun->type);
    for (int i = 0; i < lun->uas; i++) fprintf(file, "ua %s\n", lun->ua[i]);
    for (int i = 0; i < lun->flags; i++) fprintf(file, "flag %s\n", lun->flag[i]);
    fclose(file);
    if (rename(temporary, name)) abort();
}

static int has(const struct lun *lun, const char *flag) {
    for (int i = 0; i < lun->flags; i++) if (!strcmp(lun->flag[i], flag)) return 1;
    return 0;
}

static struct registration *find(struct lun *lun, const char *nexus) {
    for (int i = 0; i < lun->regs; i++) if (!strcmp(lun->reg[i].nexus, nexus)) return &lun->reg[i];
    return NULL;
}

static void drop(struct lun *lun, int i) {
    if (!strcmp(lun->holder, lun->reg[i].nexus)) *lun->holder = 0, lun->type = 0;
    lun->reg[i] = lun->reg[--lun->regs];
}

static void attention(struct lun *lun, const char *nexus) {
    if (lun->uas < MOST) strcpy(lun->ua[lun->uas++], nexus);
}

/* Whether a unit attention was waiting for this nexus; it is told once. */
static int attended(struct lun *lun, const char *nexus) {
    for (int i = 0; i < lun->uas; i++)
        if (!strcmp(lun->ua[i], nexus)) {
            memmove(lun->ua[i], lun->ua[lun->uas - 1], NAME);
            lun->uas--;
            return 1;
        }
    return 0;
}

static void be(uint8_t *at, uint64_t value, int bytes) { while (bytes--) at[bytes] = value, value >>= 8; }
static uint64_t of(const uint8_t *at, int bytes) { uint64_t v = 0; while (bytes--) v = v << 8 | *at++; return v; }

static void illegal(struct answer *a, int asc) { a->status = CHECK, a->key = 5, a->asc = asc; }

static void full_status(struct lun *lun, struct answer *a) {
    uint8_t *at = a->data + 8;
    for (int i = 0; i < lun->regs; i++, at += 24 + 24 + NAME) {
        int holds = !strcmp(lun->reg[i].nexus, lun->holder);
        be(at, lun->reg[i].key, 8);
        at[12] = holds;
        at[13] = holds ? lun->type : 0;
        be(at + 18, 1, 2);
        be(at + 20, 24 + NAME, 4);
        at[24] = 0x45; /* iSCSI, name with session id */
        be(at + 26, 20 + NAME, 2);
        snprintf((char *)at + 28, 20 + NAME, "iqn.2026-01.test:%s,i,0x1", lun->reg[i].nexus);
    }
    a->len = at - a->data;
}

static void reserve_in(struct lun *lun, int action, struct answer *a) {
    be(a->data, lun->gen, 4);
    a->len = 8;
    switch (action) {
    case 0:
        for (int i = 0; i < lun->regs; i++, a->len += 8) be(a->data + a->len, lun->reg[i].key, 8);
        break;
    case 1:
        if (*lun->holder) {
            be(a->data + 8, find(lun, lun->holder)->key, 8);
            a->data[21] = lun->type;
            a->len = 24;
        }
        break;
    case 2:
        memset(a->data, 0, 8);
        be(a->data, 8, 2);
        a->data[2] = has(lun, "noaptpl") ? 0 : 1;
        a->data[3] = 0x80 | (lun->aptpl ? 1 : 0);
        a->data[4] = 0xea, a->data[5] = 1;
        return;
    case 3:
        if (has(lun, "nofull")) { a->len = 0; illegal(a, 0x24); return; }
        full_status(lun, a);
        break;
    default:
        illegal(a, 0x24);
        return;
    }
    be(a->data + 4, a->len - 8, 4);
}

static void enrol(struct lun *lun, const char *nexus, uint64_t sark, int aptpl) {
    struct registration *own = find(lun, nexus);
    lun->gen++;
    lun->aptpl = aptpl;
    if (!sark) { if (own) drop(lun, own - lun->reg); return; }
    if (!own) { own = &lun->reg[lun->regs++]; strcpy(own->nexus, nexus); }
    own->key = sark;
}

static void preempt(struct lun *lun, const char *nexus, uint64_t sark, int type, struct answer *a) {
    struct registration *held = *lun->holder ? find(lun, lun->holder) : NULL;
    int known = 0, takes = held && held->key == sark;
    for (int i = 0; i < lun->regs; i++) known += lun->reg[i].key == sark;
    if (!sark) { illegal(a, 0x26); return; }
    if (!known) { a->status = CONFLICT; return; }
    if (has(lun, "liar")) return;
    lun->gen++;
    for (int i = lun->regs; i--;)
        if (lun->reg[i].key == sark && strcmp(lun->reg[i].nexus, nexus)) {
            attention(lun, lun->reg[i].nexus);
            drop(lun, i);
        }
    if (takes) strcpy(lun->holder, nexus), lun->type = type;
    if (has(lun, "halfhearted") && lun->regs > 1 && strcmp(lun->reg[lun->regs - 1].nexus, nexus)) {
        drop(lun, lun->regs - 1);
        lun->flags = 0;
    }
}

static void reserve_out(struct lun *lun, const char *nexus, const uint8_t *cdb, const uint8_t *list, struct answer *a) {
    uint64_t rk = of(list, 8), sark = of(list + 8, 8);
    int action = cdb[1] & 31, type = cdb[2] & 15, aptpl = list[20] & 1;
    struct registration *own = find(lun, nexus);
    int mine = own && own->key == rk;
    if (action == REGISTER && !(own ? mine : !rk)) { a->status = CONFLICT; return; }
    if (action != REGISTER && action != REGISTER_IGNORE && !mine) { a->status = CONFLICT; return; }
    switch (action) {
    case REGISTER:
    case REGISTER_IGNORE:
        if (aptpl && has(lun, "noaptpl")) illegal(a, 0x26);
        else enrol(lun, nexus, sark, aptpl);
        break;
    case RESERVE:
        if (*lun->holder && (strcmp(lun->holder, nexus) || lun->type != type)) a->status = CONFLICT;
        else strcpy(lun->holder, nexus), lun->type = type;
        break;
    case RELEASE:
        if (!strcmp(lun->holder, nexus)) *lun->holder = 0, lun->type = 0;
        break;
    case CLEAR:
        lun->gen++;
        while (lun->regs) drop(lun, 0);
        break;
    case PREEMPT_ABORT:
        if (has(lun, "noabort")) { illegal(a, 0x24); break; }
        /* fall through */
    case PREEMPT:
        preempt(lun, nexus, sark, type, a);
        break;
    default:
        illegal(a, 0x24);
    }
}

static void record(const struct path *path, const uint8_t *cdb, const uint8_t *list, int status) {
    static const char *const names[] = {"register", "reserve", "release", "clear", "preempt", "preempt-abort", "register-ignore"};
    char name[520];
    snprintf(name, sizeof name, "%s.log", path->lun);
    FILE *log = fopen(name, "a");
    if (!log) abort();
    fprintf(log, "%s %s %" PRIx64 " %" PRIx64 " %s\n", path->nexus, (cdb[1] & 31) < 7 ? names[cdb[1] & 31] : "other",
            of(list, 8), of(list + 8, 8), status == GOOD ? "good" : status == CONFLICT ? "conflict" : "check");
    fclose(log);
}

static void execute(const struct path *path, const uint8_t *cdb, const uint8_t *list, struct answer *a) {
    char name[520];
    struct lun lun;
    snprintf(name, sizeof name, "%s.lock", path->lun);
    int lock = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (lock < 0 || flock(lock, LOCK_EX)) abort();
    FILE *file = fopen(path->lun, "r");
    if (!file) abort();
    load(file, &lun);
    fclose(file);
    if (cdb[0] == 0x12) a->len = 36;
    else if (attended(&lun, path->nexus)) a->status = CHECK, a->key = 6, a->asc = 0x2a, a->ascq = 5;
    else if (cdb[0] == 0x5e) reserve_in(&lun, cdb[1] & 31, a);
    else if (cdb[0] == 0x5f) reserve_out(&lun, path->nexus, cdb, list, a);
    else illegal(a, 0x20);
    store(path->lun, &lun);
    if (cdb[0] == 0x5f) record(path, cdb, list, a->status);
    close(lock);
}

static int submit(const struct path *path, struct sg_io_hdr *io) {
    static struct answer a;
    memset(&a, 0, sizeof a);
    if (!strcmp(path->fault, "hang")) for (;;) pause();
    if (!strcmp(path->fault, "gone")) { errno = ENODEV; return -1; }
    execute(path, io->cmdp, io->dxferp, &a);
    unsigned n = a.len < io->dxfer_len ? a.len : io->dxfer_len;
    if (io->dxfer_direction == SG_DXFER_FROM_DEV && a.status == GOOD) memcpy(io->dxferp, a.data, n), io->resid = io->dxfer_len - n;
    io->status = io->masked_status = a.status;
    io->masked_status >>= 1;
    io->host_status = io->driver_status = io->sb_len_wr = 0;
    if (a.status == CHECK && io->mx_sb_len >= 18) {
        uint8_t sense[18] = {0x70, 0, a.key, 0, 0, 0, 0, 10, 0, 0, 0, 0, a.asc, a.ascq};
        memcpy(io->sbp, sense, sizeof sense);
        io->sb_len_wr = sizeof sense;
        io->driver_status = 8;
    }
    io->info = a.status == GOOD ? SG_INFO_OK : SG_INFO_CHECK;
    return 0;
}

int ioctl(int fd, unsigned long request, ...) {
    static int (*real)(int, unsigned long, ...);
    struct path path;
    va_list list;
    va_start(list, request);
    void *argument = va_arg(list, void *);
    va_end(list);
    if (request == SG_IO && is_path(fd, &path)) return submit(&path, argument);
    if (!real) real = (int (*)(int, unsigned long, ...))dlsym(RTLD_NEXT, "ioctl");
    return real(fd, request, argument);
}

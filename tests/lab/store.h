/* What both services of the laboratory's storage sites write: the lines of `leasehold demo-service`, ten milliseconds apart. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { LINE = 256, PACE_US = 10000 };

/* One line into `text`, which has room for LINE; gives its length. */
static inline int next_line(char *text, const char *node) {
    static uint64_t counter;
    const char *token = getenv("LEASEHOLD_TOKEN");
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return snprintf(text, LINE, "{\"token\":%s,\"node\":\"%s\",\"pid\":%d,\"counter\":%" PRIu64 ",\"boottime_ns\":%" PRIu64 "}\n",
                    token ? token : "0", node, (int)getpid(), ++counter,
                    (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec);
}

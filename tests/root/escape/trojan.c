/* Says where it was loaded: on the host, into a program of the platform's in a machine, or into the tenant's own. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void say(const char *file, const char *text) {
    int fd = open(file, O_WRONLY | O_CREAT | O_APPEND, 0666);
    if (fd >= 0) {
        (void)!write(fd, text, strlen(text));
        close(fd);
    }
}

__attribute__((constructor)) static void loaded(void) {
    char map[64] = "", line[64] = "", maps[4096] = "";
    int fd = open("/proc/self/uid_map", O_RDONLY);
    if (fd >= 0) {
        (void)!read(fd, map, sizeof map - 1);
        close(fd);
    }
    unsigned inside = 1, outside = 1;
    sscanf(map, "%u %u", &inside, &outside);
    if (outside == 0)
        say(CANARY, "the host\n");
    /* The command line of a process that nobody may look into is its own to read. */
    fd = open("/proc/self/cmdline", O_RDONLY);
    if (fd >= 0) {
        (void)!read(fd, maps, sizeof maps - 1);
        close(fd);
    }
    snprintf(line, sizeof line, "%.40s\n", maps);
    say("/trojan.log", line);
    if (strcmp(maps, "sshd") == 0)
        say("/trojan.log", "the platform's sshd\n");
}

int main(int count, char **words) {
    (void)count;
    words[0] = "bash";
    execv("/bin/bash", words);
    return 1;
}

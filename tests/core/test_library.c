/* test_library: tests which folders are searched for optional libraries. Each case runs in a
 * separate process, because a library is never closed. The library is the fake NCCL of the tests,
 * under a name that no machine has.
 * tests: needs libnccl_fake.so */
#include <limits.h>
#include <sys/wait.h>
#include <unistd.h>
#include "api/core/file.h"
#include "api/core/library.h"
#include "tests/lib/test.h"

#define WANTED "libseqd_wanted.so.1"

static char scratch[64], fake[PATH_MAX];
static const char *const files[] = {WANTED, NULL};

static void shell(const char *command)
{
    char all[2 * PATH_MAX + 1024];
    snprintf(all, sizeof all, "cd %s && %s", scratch, command);
    CHECK_MSG(!system(all), "%s", all);
}

/* Runs the function `find` in a process with this environment. `out` receives the text that `find`
 * writes, or the text of its error. */
static bool child_says(char *out, size_t size, const char *folders, const char *path,
                       int (*find)(char *, size_t))
{
    int pipes[2], status;
    if (pipe(pipes)) abort();
    fflush(stdout);
    const pid_t pid = fork();
    if (!pid) {
        char text[1024] = "";
        setenv("PATH", path, 1);
        if (folders)
            setenv(LIBRARY_FOLDERS, folders, 1);
        else
            unsetenv(LIBRARY_FOLDERS);
        const int rc = find(text, sizeof text);
        _exit(write(pipes[1], text, strlen(text)) < 0 ? 2 : rc != 0);
    }
    close(pipes[1]);
    const ssize_t n = read(pipes[0], out, size - 1);
    out[n > 0 ? n : 0] = 0;
    close(pipes[0]);
    waitpid(pid, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) < 2);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static int find_wanted(char *text, size_t size)
{
    struct err e = {0};
    void *handle = library_find(files, &e);
    snprintf(text, size, "%s", e.text);
    return handle ? 0 : -1;
}

static int open_nccl(char *text, size_t size)
{
    struct library l;
    struct err e = {0};
    const int rc = library_open(&l, LIBRARY_NCCL, &e);
    snprintf(text, size, "%s", rc ? e.text : l.text);
    return rc;
}

static void test_nowhere(void)
{
    char said[1024];
    CHECK(!child_says(said, sizeof said, NULL, "/nowhere", find_wanted));
    CHECK_MSG(strstr(said, WANTED) && strstr(said, "name its folder in SEQD_LIBRARY_PATH"), "%s",
              said);
}

static void test_in_a_named_folder(void)
{
    char said[1024], folders[256];
    snprintf(folders, sizeof folders, "/nowhere::relative:%s/named", scratch);
    CHECK_MSG(child_says(said, sizeof said, folders, "/nowhere", find_wanted), "%s", said);
}

/* Checks that a relative folder is not used. It would name a different folder in each working
 * directory. */
static void test_relative_folders_do_not_count(void)
{
    char said[1024];
    CHECK(!chdir(scratch));
    CHECK(!child_says(said, sizeof said, "named", "venv/bin", find_wanted));
    CHECK(!chdir("/"));
}

static void test_in_a_wheel(void)
{
    char said[1024], path[256];
    snprintf(path, sizeof path, "/nowhere:%s/venv/bin", scratch);
    CHECK_MSG(child_says(said, sizeof said, NULL, path, find_wanted), "%s", said);
    snprintf(path, sizeof path, "%s/no_python/bin", scratch);
    CHECK(!child_says(said, sizeof said, NULL, path, find_wanted));
}

/* Checks a library that exists but cannot be opened. The error must report this. */
static void test_broken(void)
{
    char said[1024], folders[256];
    snprintf(folders, sizeof folders, "%s/broken", scratch);
    CHECK(!child_says(said, sizeof said, folders, "/nowhere", find_wanted));
    CHECK_MSG(strstr(said, "broken/" WANTED ": "), "%s", said);
}

/* Checks that the folder in the environment is searched before the folders of the system. */
static void test_version_and_path(void)
{
    char said[1024], folders[256], want[PATH_MAX + 64], real[PATH_MAX];
    snprintf(folders, sizeof folders, "%s/named", scratch);
    CHECK(realpath(folders, real));
    snprintf(want, sizeof want, "NCCL 2.28.9, %s/libnccl.so.2", real);
    CHECK_MSG(child_says(said, sizeof said, folders, "/nowhere", open_nccl), "%s", said);
    CHECK_STR(said, want);
    CHECK_STR(library_name(LIBRARY_CUBLASLT), "cuBLASLt");
}

int main(int argc, char **argv)
{
    (void)argc;
    char make[2 * PATH_MAX];
    struct err e = {0};
    const char *slash = strrchr(argv[0], '/');
    snprintf(scratch, sizeof scratch, "/tmp/test_library.XXXXXX");
    if (!mkdtemp(scratch)) return 1;
    snprintf(make, sizeof make, "%.*s/../libnccl_fake.so", slash ? (int)(slash - argv[0]) : 1,
             slash ? argv[0] : ".");
    if (!realpath(make, fake)) perror(make);
    snprintf(make, sizeof make,
             "W=venv/lib/python3.12/site-packages/nvidia/nccl/lib && "
             "N=no_python/lib/python3.12/site-packages/nvidia/nccl/lib && "
             "mkdir -p named broken venv/bin no_python/bin $W $N && touch venv/bin/python3 && "
             "chmod +x venv/bin/python3 && echo no library >broken/" WANTED " && "
             "for f in named/" WANTED " named/libnccl.so.2 $W/" WANTED " $N/" WANTED
             "; do cp %s $f; done",
             fake);
    shell(make);
    RUN(test_nowhere);
    RUN(test_in_a_named_folder);
    RUN(test_relative_folders_do_not_count);
    RUN(test_in_a_wheel);
    RUN(test_broken);
    RUN(test_version_and_path);
    if (file_remove(scratch, &e)) printf("  %s\n", e.text);
    return test_done("library");
}

/* test_seqd_sources: tests the files of a job's data. Before the job is planned, nodes are asked
 * whether they have the files. Checks answers that refuse the job, answers that do not decide,
 * keys, and batches. */
#include "tests/lib/rest.h"

static int64_t now_ms = 1000000;
static const char *nodes;  /* a letter for each node, which tells how it answers */
static int n_asked;        /* the number of questions so far */
static char asked[8][128]; /* the files of the last question */
static int n_files;

static int64_t fake_clock(void *arg)
{
    return now_ms;
}

static void name_node(char name[16], int i)
{
    snprintf(name, 16, "n%02d", i);
}

static int lacks(const struct msg *m, struct err *e)
{
    return err_field(e, ERR_INVALID, "data.train.0.path", "data.train.0.path: %s matches no file",
                     strrchr(m->files[0], ':') + 1);
}

static void note(const struct msg *m)
{
    n_asked++;
    n_files = m->n_files;
    for (int i = 0; i < n_files && i < 8; i++)
        snprintf(asked[i], sizeof asked[i], "%s", m->files[i]);
}

static int look(const char *node, const struct msg *m, struct err *e)
{
    note(m);
    CHECK(m->n_files > 0 && !*m->path && !m->models);
    switch (nodes[atoi(node + 1)]) {
    case 'f': return 0;
    case 'n': return lacks(m, e);
    case 'z': return now_ms += 1100, lacks(m, e); /* slow */
    case 'b': return err_set(e, ERR_INTERNAL, "seqrank --files was ended by signal 11");
    case 'k': return err_set(e, ERR_PEER, "seqrank --files was ended by signal 9");
    case 'c': return err_set(e, ERR_CONFLICT, "node n00 answers 8 questions already");
    case 'x': return err_field(e, ERR_INVALID, "model.path", "what was not asked");
    case 'p': return err_field(e, ERR_INVALID, "data.train.0", "a part of the field");
    case 'i': return err_field(e, ERR_INTERNAL, "data.train.0.path", "another code");
    case 'w': return err_field(e, ERR_INVALID, "memory.offload_dir", "/w is not there");
    case 's': return 1;
    default: CHECK_MSG(false, "node %s is asked", node); return 0;
    }
}

static void begin_nodes(const char *letters)
{
    char name[16];
    nodes = letters;
    n_asked = 0;
    rest_clock = fake_clock;
    rest_look = look;
    begin();
    /* The nodes join in the reverse of the order in which seqd asks them. */
    for (int i = (int)strlen(letters) - 1; i >= 0; i--) {
        name_node(name, i);
        node_joins_as(name, 0);
        if (letters[i] == 'o')
            node_find((struct nodes *)control_nodes(w.control), name)->abi = WIRE_ABI_BEFORE;
        if (letters[i] == 'd') control_link_calls.down(w.control, name, "gone", 0);
    }
}

static void finish_nodes(void)
{
    finish();
    rest_clock = NULL;
    rest_look = NULL;
}

/* Checks when a job is refused: every node that is up and can run a job must have searched, and
 * none may have the files. */
static void test_verdicts(void)
{
    static const struct {
        const char *nodes;
        int status, n_asked;
    } rows[] = {
        {"", 201, 0},
        {"f", 201, 1},
        {"n", 400, 1},
        {"nf", 201, 2},
        {"fn", 201, 1},
        {"nn", 400, 2},
        {"b", 201, 1},
        {"nb", 400, 2},
        {"bn", 400, 2},
        {"bf", 201, 2},
        {"k", 201, 1},
        {"nk", 201, 2},
        {"cn", 201, 1},
        {"nc", 201, 2},
        {"x", 201, 1},
        {"nx", 201, 2},
        {"p", 201, 1},
        {"i", 201, 1},
        {"o", 201, 0},
        {"no", 201, 1},
        {"on", 201, 0},
        {"nd", 400, 1},
        {"d", 201, 0},
        {"zz", 400, 2},
        {"zzn", 201, 2},
        {"zzf", 201, 2},
        {"zf", 201, 2},
        {"nnnnnnnnnnnn", 400, 12},
        {"nnnnnnnnnnnf", 201, 12},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        begin_nodes(rows[i].nodes);
        CHECK_MSG(post("/v1/jobs", job_json) == rows[i].status, "%s: %s", rows[i].nodes, reply);
        CHECK_MSG(n_asked == rows[i].n_asked, "%s: %d", rows[i].nodes, n_asked);
        CHECK(control_n_live(w.control) == (rows[i].status == 201));
        if (rows[i].status == 400)
            CHECK_MSG(strstr(reply, "\"pointer\":\"/data/train/0/path\"") &&
                          strstr(reply, "data.train.0.path: /x matches no file"),
                      "%s", reply);
        finish_nodes();
    }
}

/* Checks a silent node and a node that disconnects. Either of them may have the files, so the job
 * must not be refused. */
static void test_silence(void)
{
    for (int gone = 0; gone < 2; gone++) {
        begin_nodes("ns");
        const int fd = post_begin("/v1/jobs", "", job_json);
        while (n_asked < 2) loop_turn(w.loop, 5);
        CHECK(!control_n_live(w.control));
        now_ms += gone ? 0 : ASK_FILES_MS;
        if (gone) control_link_calls.down(w.control, "n01", "gone", 0);
        CHECK_MSG(answer_of(fd) == 201, "%s", reply);
        finish_nodes();
    }
}

static const char two_sets[] =
    "{\"kind\":\"train\",\"model\":{\"config\":{\"hidden_size\":64,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":4,\"intermediate_size\":128}},\"data\":{\"train\":[{\"path\":\"a/"
    "*.txt\"},"
    "{\"path\":\"b\",\"format\":\"megatron\"}],\"seq_len\":100},\"eval\":{\"data\":[{\"path\":"
    "\"c:d.jsonl\"}]},\"train\":{\"steps\":5}}";

/* Checks the question that each request sends to nodes. */
static void test_questions(void)
{
    begin_nodes("f");
    CHECK_MSG(post("/v1/jobs", two_sets) == 201 && n_asked == 1, "%s", reply);
    CHECK(n_files == 3);
    CHECK_STR(asked[0], "data.train.0.path:text:a/*.txt");
    CHECK_STR(asked[1], "data.train.1.path:megatron:b");
    CHECK_STR(asked[2], "eval.data.0.path:jsonl:c:d.jsonl");
    nodes = "n";
    CHECK(post("/v1/plan", job_json) == 400 && strstr(reply, "/x matches no file"));
    CHECK(post("/v1/jobs?dry_run=true", job_json) == 400 && strstr(reply, "/x matches no file"));
    CHECK(n_asked == 3 && n_files == 1);
    /* A plan for other hardware is not about the data of this cluster. */
    char *elsewhere = NULL;
    CHECK(asprintf(&elsewhere, "{\"hardware\":{\"devices\":2,\"memory_gib\":80},%s", job_json + 1) >
          0);
    CHECK_MSG(post("/v1/plan", elsewhere) == 200 && n_asked == 3, "%s", reply);
    free(elsewhere);
    /* Nodes are asked for memory.offload_dir, too. */
    char *away = NULL;
    nodes = "w";
    CHECK(asprintf(&away, "{\"memory\":{\"offload\":\"activations\",\"offload_dir\":\"/w\"},%s",
                   job_json + 1) > 0);
    CHECK_MSG(post("/v1/jobs", away) == 400 && n_asked == 4 && n_files == 2, "%s", reply);
    CHECK_STR(asked[1], "memory.offload_dir:writable:/w");
    CHECK_MSG(strstr(reply, "\"pointer\":\"/memory/offload_dir\""), "%s", reply);
    free(away);
    /* If a request names no file, no node is asked. */
    CHECK(post("/v1/jobs", "{\"kind\":\"train\"}") == 400 && n_asked == 4);
    finish_nodes();
}

/* Checks a key that has already made a job. The answer must be that job, even if its files are
 * gone now. */
static void test_keys(void)
{
    begin_nodes("f");
    CHECK(post_with("/v1/jobs", "Idempotency-Key: a\r\n", job_json) == 201);
    nodes = "n";
    CHECK(post_with("/v1/jobs", "Idempotency-Key: a\r\n", job_json) == 201 && n_asked == 1);
    CHECK(strstr(reply, "Idempotency-Replayed: true") && strstr(reply, "\"id\":1,"));
    CHECK(post_with("/v1/jobs", "Idempotency-Key: b\r\n", job_json) == 400 && n_asked == 2);
    nodes = "f"; /* a request that was refused does not use up its key */
    CHECK(post_with("/v1/jobs", "Idempotency-Key: b\r\n", job_json) == 201 && n_asked == 3);
    finish_nodes();
}

/* ---- batches --------------------------------------------------------------------------------- */

/* Makes the text {"jobs":[...]} with a job for each letter of `names`. The letter is the name of
 * the job's data. The caller frees the text. */
static char *batch_of(const char *names)
{
    char *out;
    size_t size;
    FILE *f = open_memstream(&out, &size);
    for (const char *p = names; *p; p++)
        fprintf(f, "%s%.*s/%c%s", p == names ? "{\"jobs\":[" : ",",
                (int)(strstr(job_json, "/x") - job_json), job_json, *p, strstr(job_json, "/x") + 2);
    fprintf(f, "]}");
    fclose(f);
    return out;
}

static int post_batch(const char *headers, const char *names)
{
    char *body = batch_of(names);
    const int status = post_with("/v1/jobs:batch", headers, body);
    free(body);
    return status;
}

static int lacks_y(const char *node, const struct msg *m, struct err *e)
{
    note(m);
    return strstr(m->files[0], "/y") ? lacks(m, e) : 0;
}

/* Checks that nodes are asked only once for the same files. After a node that does not answer, no
 * further question may be sent. */
static void test_batches(void)
{
    begin_nodes("f");
    CHECK_MSG(post_batch("", "aaabababbbaaaaccab") == 201 && n_asked == 3, "%d %s", n_asked, reply);
    CHECK(post_batch("", "ab") == 201 && n_asked == 5); /* a second batch asks the nodes again */
    nodes = "c";
    CHECK(post_batch("", "abcdefgh") == 201 && n_asked == 6);
    finish_nodes();
    begin_nodes("fn");
    rest_look = lacks_y;
    CHECK(post_batch("Idempotency-Key: k\r\n", "abc") == 201 && n_asked == 3);
    CHECK(post_batch("", "ayaxy") == 400 && !strstr(reply, "/jobs/0/"));
    CHECK_MSG(strstr(reply, "\"/jobs/1/data/train/0/path\"") &&
                  strstr(reply, "jobs[4]: data.train.0.path: /y matches no file"),
              "%s", reply);
    CHECK(control_n_live(w.control) == 3);
    /* all files have been removed, but the answer for the key must be the same as before */
    rest_look = look;
    nodes = "nn";
    n_asked = 0;
    CHECK(post_batch("Idempotency-Key: k\r\n", "abc") == 201 && !n_asked);
    CHECK(strstr(reply, "Idempotency-Replayed: true"));
    finish_nodes();
}

/* Checks a seqd that stops while a node is being asked. */
static void test_stop(void)
{
    begin_nodes("s");
    char *body = batch_of("ab");
    const int fd = post_begin("/v1/jobs:batch", "", body);
    while (!n_asked) loop_turn(w.loop, 5);
    finish_nodes();
    close(fd);
    free(body);
}

int main(void)
{
    seqd_test_init();
    RUN(test_verdicts);
    RUN(test_silence);
    RUN(test_questions);
    RUN(test_keys);
    RUN(test_batches);
    RUN(test_stop);
    return test_done("seqd_sources");
}

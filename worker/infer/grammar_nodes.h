/* grammar_nodes.h: the nodes of a compiled grammar. It is private to worker/infer/grammar*.c. */
#ifndef SEQD_INFER_GRAMMAR_NODES_H
#define SEQD_INFER_GRAMMAR_NODES_H

#include "worker/infer/grammar.h"

enum grammar_kind {
    GRAMMAR_ROOT,  /* child: the value of the text */
    GRAMMAR_UNION, /* link[first, first + n): the nodes of which one fits */
    /* property[first, first + n); child: node of other properties, -1 if there are none */
    GRAMMAR_OBJECT,
    GRAMMAR_ARRAY,  /* child: node of the items; [min, max] items, max -1 for any number */
    GRAMMAR_STRING, /* [min, max] characters, max -1 for any number */
    GRAMMAR_NUMBER,
    GRAMMAR_INTEGER,
    GRAMMAR_LITERAL, /* literal[first, first + n), sorted: the whole text of the value */
    GRAMMAR_CALL     /* literal[first + i], sorted, then a value of property[child + 1 + i], then
                      * the name of property[child]; i < n */
};

struct grammar_node {
    uint8_t kind;
    uint8_t depth;   /* most frames of a value */
    uint8_t ways;    /* most ways to read a value at once */
    uint8_t frames;  /* most frames of all these ways together */
    uint8_t pending; /* set while the schema of the node is compiled */
    int32_t first, n, child, min, max;
};
struct grammar_text { /* bytes [at, at + size) */
    int32_t at, size;
};
struct grammar_property {
    struct grammar_text name; /* as it stands between quotes */
    int32_t node;
    bool required;
    int32_t until; /* index in the object after the first required property from here */
};

/* The nodes of values without a schema, which every grammar begins with. */
enum {
    NODE_ROOT,
    NODE_ANY,
    NODE_ANY_OBJECT,
    NODE_ANY_ARRAY,
    NODE_ANY_STRING,
    NODE_ANY_NUMBER,
    NODE_ANY_WORD,
    N_NODE_ANY
};

struct grammar {
    struct grammar_node *node;
    struct grammar_property *property;
    struct grammar_text *literal;
    int32_t *link;
    char *bytes;
    int64_t n_nodes, n_properties, n_literals, n_links, n_bytes;
    int64_t node_room, property_room, literal_room, link_room, byte_room;
};

/* Creates a grammar with the nodes of values without a schema. */
struct grammar *grammar_create(struct err *e);
/* Each function appends elements that are zero, and returns the index of the first, or -1 after an
 * error. */
int32_t grammar_add_node(struct grammar *g, enum grammar_kind kind, struct err *e);
int32_t grammar_add_properties(struct grammar *g, int64_t n, struct err *e);
int32_t grammar_add_links(struct grammar *g, int64_t n, struct err *e);
int grammar_add_bytes(struct grammar *g, const char *s, int64_t n, struct err *e);
/* Appends a literal of `size` bytes, which were appended last. */
int32_t grammar_add_literal(struct grammar *g, int64_t size, struct err *e);
/* Sorts the literals of a node and removes those that occur twice. */
void grammar_sort_literals(struct grammar *g, struct grammar_node *node);
/* Computes the depth, the ways and the frames of a node whose parts are complete. Fails over a
 * limit. */
int grammar_measure(struct grammar *g, int32_t node, struct err *e);

#endif

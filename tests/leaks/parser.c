// Parses documents. Where one is wrong, the nodes that are not in the tree yet are lost.
#include <stdlib.h>
#include <string.h>

struct node {
    struct node *child, *next;
    char *text;
    char rest[64];
};

static struct node *new_node(void) {
    struct node *node = calloc(1, sizeof *node);
    if (node == NULL) abort();
    return node;
}

static struct node *new_text(const char *from, size_t bytes) {
    struct node *node = new_node();
    node->text = malloc(bytes + 1); // LEAK
    if (node->text == NULL) abort();
    memcpy(node->text, from, bytes);
    node->text[bytes] = 0;
    return node;
}

static struct node *new_element(const char *from, size_t bytes) {
    struct node *node = new_node();
    node->text = malloc(bytes + 1);
    if (node->text == NULL) abort();
    memcpy(node->text, from, bytes);
    node->text[bytes] = 0;
    return node;
}

static void delete_tree(struct node *node) {
    while (node != NULL) {
        struct node *next = node->next;
        delete_tree(node->child);
        free(node->text);
        free(node);
        node = next;
    }
}

/* A tree, or NULL if the document is wrong. Text outside of an element makes it wrong. */
static struct node *parse(const char *text) {
    struct node *root = NULL;
    while (*text != 0) {
        size_t bytes = strcspn(text, "<>");
        if (*text == '<') {
            bytes = strcspn(++text, ">");
            struct node *element = new_element(text, bytes);
            element->child = root;
            root = element;
            text += bytes + (text[bytes] == '>');
            continue;
        }
        struct node *found = new_text(text, bytes);
        if (root == NULL) {
            delete_tree(root);
            return NULL;
        }
        found->next = root->next;
        root->next = found;
        text += bytes;
    }
    return root;
}

int main(void) {
    static char right[700], wrong[700];
    memset(right, 'x', sizeof right - 1);
    memcpy(right, "<a><b>", 6);
    memset(wrong, 'y', sizeof wrong - 1);
    struct node *kept[3000];
    for (int i = 0; i < 3000; i++) kept[i] = parse(right);
    for (int i = 0; i < 20000; i++) {
        delete_tree(parse(right));
        parse(wrong);
    }
    for (int i = 0; i < 3000; i++) delete_tree(kept[i]);
    return 0;
}

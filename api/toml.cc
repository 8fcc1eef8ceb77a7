/* toml.cc: the only file in C++, because Debian has no TOML library in C. No exception leaves this
 * file. */
#include "api/toml.h"

#include <toml++/toml.h>

namespace
{

struct option_value value_of(const toml::node &node)
{
    struct option_value v = {OPTION_IS_OTHER, "", 0, -1, 0};
    if (auto text = node.as_string()) v.kind = OPTION_IS_TEXT, v.text = text->get().c_str();
    if (auto number = node.as_integer()) v.kind = OPTION_IS_NUMBER, v.number = number->get();
    if (auto flag = node.as_boolean()) v.kind = OPTION_IS_BOOL, v.number = flag->get();
    return v;
}

/* Tells whether a text has no NUL inside. C would read only the part before a NUL. */
bool is_whole(const toml::node &node)
{
    auto text = node.as_string();
    return !text || text->get().find('\0') == std::string::npos;
}

int tell(const char *name, const std::string &key, const toml::node &node, toml_key *call,
         void *arg, int index, int n, struct err *e)
{
    struct option_value v = value_of(node);
    v.index = index;
    v.n = n;
    int rc = is_whole(node) && key.find('\0') == std::string::npos
                 ? call(arg, key.c_str(), &v, e)
                 : err_set(e, ERR_INVALID, "the text has a NUL byte");
    return rc ? err_prefix(e, "%s:%d", name, (int)node.source().begin.line) : 0;
}

int read_table(const toml::table &table, const char *name, toml_key *call, void *arg, struct err *e)
{
    for (auto &&[key, node] : table) {
        const std::string word(key.str());
        auto array = node.as_array();
        const int n = array ? (int)array->size() : 0;
        int rc = 0;
        if (!array)
            rc = tell(name, word, node, call, arg, -1, 0, e);
        else if (!n)
            rc = tell(name, word, node, call, arg, 0, 0, e);
        for (int i = 0; !rc && i < n; i++)
            rc = tell(name, word, (*array)[(size_t)i], call, arg, i, n, e);
        if (rc) return -1;
    }
    return 0;
}

} // namespace

int toml_read(const char *text, size_t size, const char *name, toml_key *key, void *arg,
              struct err *e)
{
    try {
        return read_table(toml::parse(std::string_view(text, size)), name, key, arg, e);
    } catch (const toml::parse_error &bad) {
        return err_set(e, ERR_INVALID, "%s:%d: %s", name, (int)bad.source().begin.line,
                       std::string(bad.description()).c_str());
    } catch (...) {
        return err_set(e, ERR_INVALID, "%s: cannot be read as TOML", name);
    }
}

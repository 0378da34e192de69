/* A program that embeds Python and runs on ebbmalloc.
 *
 * Link libebbmalloc.so or libebbmalloc.a first: then it is the malloc of the program, of Python and
 * of all extensions (docs/python.md). */
#include <Python.h>

int main(int count, char **arguments) {
    Py_Initialize();
    int failed = PyRun_SimpleString(count > 1 ? arguments[1]
                                              : "import ebbmalloc; print(ebbmalloc.is_active())");
    return Py_FinalizeEx() < 0 || failed ? 1 : 0;
}

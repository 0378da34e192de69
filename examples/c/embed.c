// A program with other people's libraries: an interpreter (Lua) and a database (SQLite).
// It is linked statically, ebbmalloc.o first. Neither library knows of ebbmalloc.
//
//     cc -I/usr/include/lua5.4 embed.c PREFIX/lib/ebbmalloc.o -o embed -static \
//         -llua5.4 -lsqlite3 -lm
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

extern size_t ebb_stats(int format, char *buffer, size_t bytes) __attribute__((weak));

static const char script[] =
    "local words = {}\n"
    "for i = 1, 100000 do words[i] = 'word ' .. i * 7919 % 100000 end\n"
    "table.sort(words)\n"
    "return #table.concat(words, ' ')";

static const char query[] =
    "create table words (word text primary key, count integer);"
    "with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000)"
    " insert into words select 'word ' || i, i % 10 from n;"
    "delete from words where count > 4;";

int main(void) {
    lua_State *lua = luaL_newstate();
    if (lua == NULL) return 1;
    luaL_openlibs(lua);
    if (luaL_dostring(lua, script) != LUA_OK) return 1;
    printf("Lua: %lld bytes of words\n", (long long)lua_tointeger(lua, -1));
    lua_close(lua);

    sqlite3 *database;
    if (sqlite3_open(":memory:", &database) != SQLITE_OK) return 1;
    if (sqlite3_exec(database, query, NULL, NULL, NULL) != SQLITE_OK) return 1;
    sqlite3_stmt *count;
    if (sqlite3_prepare_v2(database, "select count(*), sum(count) from words", -1, &count, NULL) !=
        SQLITE_OK)
        return 1;
    if (sqlite3_step(count) != SQLITE_ROW) return 1;
    printf("SQLite: %d words, %d in all\n", sqlite3_column_int(count, 0),
           sqlite3_column_int(count, 1));
    sqlite3_finalize(count);
    sqlite3_close(database);

    char line[200] = "";
    if (ebb_stats != NULL) ebb_stats(1, line, sizeof line); // 1: EBB_STATS_TEXT
    if (line[0] == 0) puts("served by the C library's malloc");
    else printf("served by ebbmalloc %s\n", strtok(line, "\n"));
    return 0;
}

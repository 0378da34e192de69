// Opens and closes the library of its argument again and again, while threads that have allocated
// in it live on. It stays loaded: it does its work each time, and as they end.
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 20 };

static pthread_barrier_t barrier;

static void *use(void *work) {
    ((size_t (*)(size_t))work)(1000);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return NULL;
}

int main(int count, char **paths) {
    pthread_t threads[ROUNDS];
    pthread_barrier_init(&barrier, NULL, 2);
    for (int i = 0; i < ROUNDS && count > 1; i++) {
        void *library = dlopen(paths[1], RTLD_NOW | RTLD_LOCAL);
        void *work = library != NULL ? dlsym(library, "work") : NULL;
        if (work == NULL) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        pthread_create(&threads[i], NULL, use, work);
        pthread_barrier_wait(&barrier);
        dlclose(library);
        pid_t child = fork();
        if (child == 0) _exit(0);
        int status = -1;
        waitpid(child, &status, 0);
        if (status != 0) return 1;
        pthread_barrier_wait(&barrier);
        pthread_join(threads[i], NULL);
    }
    printf("%d times\n", ROUNDS);
    return 0;
}

/* count_locks.c: preloaded into a process, counts the mutexes that each of its threads locks. */
#include <dlfcn.h>
#include <pthread.h>

static __thread long locks;

long locks_of_this_thread(void) { return locks; }

int pthread_mutex_lock(pthread_mutex_t* mutex) {
  static int (*real)(pthread_mutex_t*);
  if (real == NULL) real = (int (*)(pthread_mutex_t*))dlsym(RTLD_NEXT, "pthread_mutex_lock");
  ++locks;
  return real(mutex);
}

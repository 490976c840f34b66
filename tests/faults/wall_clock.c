/* Preloaded in front of the C library: a wall clock that jumps by the number of seconds in the file $WALL_CLOCK
 * (64 bits) as soon as that is written. As on a machine whose clock is set, no other clock changes. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t *jump;

__attribute__((constructor)) static void begin(void)
{
	const char *name = getenv("WALL_CLOCK");
	int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
	void *place = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *jump, PROT_READ, MAP_SHARED, file, 0);

	if (place == MAP_FAILED)
		abort();
	close(file);
	jump = place;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
	int failed = syscall(SYS_clock_gettime, clock, now);

	if (!failed && jump && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
		now->tv_sec += __atomic_load_n(jump, __ATOMIC_RELAXED);
	return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	struct timespec time;

	(void)zone;
	if (clock_gettime(CLOCK_REALTIME, &time))
		return -1;
	now->tv_sec = time.tv_sec;
	now->tv_usec = time.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *now)
{
	struct timespec time;

	clock_gettime(CLOCK_REALTIME, &time);
	if (now)
		*now = time.tv_sec;
	return time.tv_sec;
}

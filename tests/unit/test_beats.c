/* Beats by datagram: the addresses that a rank gives, where beats are sent, and which are received. The
 * system's list of addresses is this test's own, and so are, where a case says so, its sockets. */
#define _DEFAULT_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "comm/heartbeat_udp.h"
#include "util/mem.h"
#include "check.h"

/* ---- the system ---- */

static struct ifaddrs *list;
static bool no_list, no_v6, no_v4, fails, sends;
static int n_sockets;
static char said[2000];

int getifaddrs(struct ifaddrs **all)
{
	*all = list;
	return no_list ? -1 : 0;
}

void freeifaddrs(struct ifaddrs *all) { assert(all == list); }

int socket(int domain, int type, int protocol)
{
	n_sockets++;
	if ((domain == AF_INET6 && no_v6) || (domain == AF_INET && no_v4)) {
		errno = EAFNOSUPPORT;
		return -1;
	}
	return (int)syscall(SYS_socket, domain, type, protocol);
}

/* Says where a datagram goes; sends it if the test wants that. */
ssize_t sendto(int fd, const void *p, size_t n, int flags, const struct sockaddr *to, socklen_t size)
{
	char text[INET6_ADDRSTRLEN];
	const struct sockaddr_in6 *v6 = (const void *)to;
	const struct sockaddr_in *v4 = (const void *)to;
	const bool is_v6 = to->sa_family == AF_INET6;

	assert(IS(size, ==, is_v6 ? sizeof *v6 : sizeof *v4) && IS(n, ==, sizeof(struct dlb_beat)));
	inet_ntop(to->sa_family, is_v6 ? (const void *)&v6->sin6_addr : (const void *)&v4->sin_addr, text,
		  sizeof text);
	sprintf(said + strlen(said), "%s:%d ", text, ntohs(is_v6 ? v6->sin6_port : v4->sin_port));
	if (fails && is_v6)
		return -1;
	return sends ? syscall(SYS_sendto, fd, p, n, flags, to, size) : (ssize_t)n;
}

/* ---- addresses ---- */

static const struct interface {
	const char *address;
	unsigned flags;
} mixed[] = {
	{ "127.0.0.1", IFF_UP | IFF_LOOPBACK },
	{ "10.0.0.5", IFF_UP },
	{ "10.0.0.6", 0 },
	{ NULL, IFF_UP },
	{ "fe80::1", IFF_UP },
	{ "::1", IFF_UP | IFF_LOOPBACK },
	{ "2001:db8::7", IFF_UP | IFF_RUNNING },
	{ "", IFF_UP }, /* of another family */
	{ "192.168.3.4", IFF_UP },
};

static void set_list(const struct interface *x, int n)
{
	static struct ifaddrs all[16];
	static struct sockaddr_storage address[16];

	for (int i = 0; i < n; i++) {
		struct sockaddr_in *v4 = (void *)&address[i];
		struct sockaddr_in6 *v6 = (void *)&address[i];

		all[i] = (struct ifaddrs){ .ifa_next = i + 1 < n ? &all[i + 1] : NULL,
					   .ifa_flags = x[i].flags };
		if (!x[i].address)
			continue;
		all[i].ifa_addr = (void *)&address[i];
		if (inet_pton(AF_INET, x[i].address, &v4->sin_addr) == 1)
			address[i].ss_family = AF_INET;
		else if (inet_pton(AF_INET6, x[i].address, &v6->sin6_addr) == 1)
			address[i].ss_family = AF_INET6;
		else
			address[i].ss_family = AF_UNIX;
	}
	list = all;
}

static const char *addresses(const struct dlb_beat_place *p)
{
	static char text[1000];

	*text = '\0';
	for (uint32_t i = 0; i < p->n; i++) {
		inet_ntop(AF_INET6, p->address[i], text + strlen(text), INET6_ADDRSTRLEN);
		strcat(text, " ");
	}
	return text;
}

static void places(void)
{
	struct interface many[10];
	struct dlb_beat_place p;
	int fd;

	set_list(mixed, DLB_LEN(mixed));
	fd = dlb_beat_open(&p);
	assert(IS(fd, >=, 0) && IS(p.port, >, 0) && IS(n_sockets, ==, 1));
	assert(SAME(addresses(&p), "::ffff:10.0.0.5 2001:db8::7 ::ffff:192.168.3.4 "));
	close(fd);
	for (int i = 0; i < 10; i++)
		many[i] = (struct interface){ "10.1.1.1", IFF_UP };
	set_list(many, 10);
	fd = dlb_beat_open(&p);
	assert(IS(fd, >=, 0) && IS(p.n, ==, DLB_BEAT_ADDRESSES));
	close(fd);
	no_list = no_v6 = true; /* without IPv6, and without a list */
	n_sockets = 0;
	fd = dlb_beat_open(&p);
	assert(IS(fd, >=, 0) && IS(p.n, ==, 0) && IS(p.port, >, 0) && IS(n_sockets, ==, 2));
	close(fd);
	no_v4 = true;
	assert(IS(dlb_beat_open(&p), ==, -1) && IS(p.port, ==, 0));
	no_list = no_v6 = no_v4 = false;
}

/* ---- beats ---- */

static void sent(void)
{
	const struct dlb_beat b = { .secret = 7, .rank = 1, .n = 2 };
	struct dlb_beat_place p;
	int fd;

	set_list(mixed, DLB_LEN(mixed));
	fd = dlb_beat_open(&p);
	p.port = 4242;
	dlb_beat_send(fd, &p, false, &b);
	assert(SAME(said, "::ffff:10.0.0.5:4242 2001:db8::7:4242 ::ffff:192.168.3.4:4242 "));
	*said = '\0';
	dlb_beat_send(fd, &p, true, &b);
	assert(SAME(said,
		    "::ffff:127.0.0.1:4242 ::ffff:10.0.0.5:4242 2001:db8::7:4242 ::ffff:192.168.3.4:4242 "));
	*said = '\0';
	fails = true; /* a socket of IPv4 */
	dlb_beat_send(fd, &p, false, &b);
	assert(SAME(said, "::ffff:10.0.0.5:4242 10.0.0.5:4242 2001:db8::7:4242 ::ffff:192.168.3.4:4242 "
			  "192.168.3.4:4242 "));
	*said = '\0';
	fails = false;
	p.port = 0; /* nowhere */
	dlb_beat_send(fd, &p, true, &b);
	assert(SAME(said, ""));
	close(fd);
}

static void received(void)
{
	for (int v4 = 0; v4 < 2; v4++) {
		const struct dlb_beat beats[] = { { 7, 1, 2, 3, 1 }, { 8, 1, 3, 0, 0 }, { 7, 4, 5, 0, 0 } };
		struct dlb_beat_place p;
		struct dlb_beat b;
		int fd;

		no_list = true;
		no_v6 = v4;
		fd = dlb_beat_open(&p);
		assert(IS(fd, >=, 0) && !dlb_beat_receive(fd, 7, &b));
		sends = true;
		for (int i = 0; i < 3; i++)
			dlb_beat_send(fd, &p, true, &beats[i]);
		/* another one's secret is passed over */
		assert(dlb_beat_receive(fd, 7, &b) && !memcmp(&b, &beats[0], sizeof b));
		assert(dlb_beat_receive(fd, 7, &b) && !memcmp(&b, &beats[2], sizeof b));
		assert(!dlb_beat_receive(fd, 7, &b));
		/* and so is what is too short */
		struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)p.port) };
		const int from = socket(AF_INET, SOCK_DGRAM, 0);

		to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		syscall(SYS_sendto, from, &beats[0], sizeof beats[0] - 1, 0, &to, sizeof to);
		syscall(SYS_sendto, from, &beats[2], sizeof beats[2], 0, &to, sizeof to);
		assert(dlb_beat_receive(fd, 7, &b) && !memcmp(&b, &beats[2], sizeof b) &&
		       !dlb_beat_receive(fd, 7, &b));
		close(from);
		close(fd);
		sends = no_list = no_v6 = false;
	}
}

int main(void)
{
	places();
	sent();
	received();
	return 0;
}

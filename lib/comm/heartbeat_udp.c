/* Beats by datagram. See heartbeat_udp.h. */
#define _DEFAULT_SOURCE			/* getifaddrs */
#include "comm/heartbeat_udp.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The address as IPv6, IPv4 mapped; false: of another family, or it needs a scope. */
static bool mapped(const struct sockaddr *a, unsigned char to[16])
{
	if (a->sa_family == AF_INET) {
		const struct sockaddr_in *v4 = (const void *)a;

		memset(to, 0, 10);
		memset(to + 10, 0xff, 2);
		memcpy(to + 12, &v4->sin_addr, 4);
		return true;
	}
	if (a->sa_family == AF_INET6) {
		const struct sockaddr_in6 *v6 = (const void *)a;

		memcpy(to, &v6->sin6_addr, 16);
		return !IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr);
	}
	return false;
}

static void find_addresses(struct dlb_beat_place *p)
{
	struct ifaddrs *all = NULL;

	if (getifaddrs(&all))
		return;
	for (const struct ifaddrs *i = all; i && p->n < DLB_BEAT_ADDRESSES; i = i->ifa_next)
		if (i->ifa_addr && i->ifa_flags & IFF_UP && !(i->ifa_flags & IFF_LOOPBACK))
			p->n += mapped(i->ifa_addr, p->address[p->n]);
	freeifaddrs(all);
}

/* Binds to any port of the family; returns it, 0: not possible. */
static unsigned bind_any(int fd, int family)
{
	struct sockaddr_storage a = { .ss_family = (sa_family_t)family };
	socklen_t n = family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
	const int no = 0;

	if (family == AF_INET6)		/* also for IPv4 */
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, n) || getsockname(fd, (struct sockaddr *)&a, &n))
		return 0;
	return ntohs(family == AF_INET6 ? ((struct sockaddr_in6 *)(void *)&a)->sin6_port :
					  ((struct sockaddr_in *)(void *)&a)->sin_port);
}

int dlb_beat_open(struct dlb_beat_place *mine)
{
	static const int families[] = { AF_INET6, AF_INET };	/* without IPv6, IPv4 alone */

	memset(mine, 0, sizeof *mine);
	for (int i = 0; i < 2; i++) {
		const int fd = socket(families[i], SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

		mine->port = bind_any(fd, families[i]);
		if (mine->port) {
			find_addresses(mine);
			return fd;
		}
		if (fd >= 0)
			close(fd);
	}
	return -1;
}

/* Sends b to one address; an IPv4 socket reaches only IPv4 addresses. A datagram that cannot be sent is
 * treated like a lost one. */
static void send_to(int fd, const unsigned char address[16], uint32_t port, const struct dlb_beat *b)
{
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port) };
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };

	memcpy(&v6.sin6_addr, address, 16);
	memcpy(&v4.sin_addr, address + 12, 4);
	if (sendto(fd, b, sizeof *b, MSG_DONTWAIT, (struct sockaddr *)&v6, sizeof v6) < 0 &&
	    IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr))
		(void)!sendto(fd, b, sizeof *b, MSG_DONTWAIT, (struct sockaddr *)&v4, sizeof v4);
}

void dlb_beat_send(int fd, const struct dlb_beat_place *to, bool local, const struct dlb_beat *b)
{
	static const unsigned char here[16] = { [10] = 0xff, [11] = 0xff, [12] = 127, [15] = 1 };

	if (!to->port)
		return;
	if (local)
		send_to(fd, here, to->port, b);
	for (uint32_t i = 0; i < to->n; i++)
		send_to(fd, to->address[i], to->port, b);
}

bool dlb_beat_receive(int fd, uint64_t secret, struct dlb_beat *b)
{
	for (;;) {
		const ssize_t n = recv(fd, b, sizeof *b, MSG_DONTWAIT);

		if (n < 0)
			return false;
		if (n == (ssize_t)sizeof *b && b->secret == secret)
			return true;
	}
}

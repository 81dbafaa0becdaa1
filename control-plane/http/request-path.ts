/** The path of a request, and whether it is a probe's. */
import type { FastifyRequest } from 'fastify';

/** RFC 9112 section 3.2.2: a server takes a target in absolute form too, as the router does. */
const ORIGIN = /^https?:\/\/[^/?]*/i;

export function pathOf(request: FastifyRequest): string {
  const target = request.url.replace(ORIGIN, '');
  const query = target.indexOf('?');
  return query === -1 ? target : target.slice(0, query);
}

/** A prober asks every second or so: what it is told is logged where it changes, by who tells it. */
const PROBES: ReadonlySet<string> = new Set(['/livez', '/readyz']);

export const isProbe = ({ routeOptions: { url } }: FastifyRequest) =>
  url !== undefined && PROBES.has(url);

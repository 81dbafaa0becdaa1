import type { FastifyRequest } from 'fastify';

/** RFC 9112 section 3.2.2: servers and the router also take a target in absolute form. */
const ORIGIN = /^https?:\/\/[^/?]*/i;

export function pathOf(request: FastifyRequest): string {
  const target = request.url.replace(ORIGIN, '');
  const query = target.indexOf('?');
  return query === -1 ? target : target.slice(0, query);
}

/** Logged only when their answers change. */
const PROBES: ReadonlySet<string> = new Set(['/livez', '/readyz']);

export const isProbe = ({ routeOptions: { url } }: FastifyRequest) =>
  url !== undefined && PROBES.has(url);

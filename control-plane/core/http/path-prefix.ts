/** For a base URL with a path: the proxy in front strips the path, so answers must add it again. */
import type { FastifyInstance } from 'fastify';

/** Pages write addresses in double quotes, and escape quotes in other text. */
const ADDRESS = /(\s(?:href|src|action|formaction|poster)=")(?=\/(?!\/))/g;
const MARKDOWN_LINK = /(\]\()(?=\/(?!\/))/g;
const PATH = /^\/(?!\/)/;

/** Empty if the URL has no path. */
export function pathPrefixOf(baseUrl: string): string {
  return new URL(baseUrl).pathname.replace(/\/$/, '');
}

export function addPathPrefix(app: FastifyInstance, baseUrl: string): void {
  const prefix = pathPrefixOf(baseUrl);
  if (prefix === '') return;
  app.addHook('onSend', async (_request, reply, payload) => {
    const location = reply.getHeader('location');
    if (typeof location === 'string' && PATH.test(location)) {
      reply.header('location', `${prefix}${location}`);
    }
    const type = String(reply.getHeader('content-type'));
    const links = type.startsWith('text/html') ? ADDRESS : MARKDOWN_LINK;
    const isDocument = /^text\/(?:html|markdown)\b/.test(type);
    const isWhole = typeof payload === 'string' || Buffer.isBuffer(payload);
    return isDocument && isWhole ? String(payload).replace(links, `$1${prefix}`) : payload;
  });
}

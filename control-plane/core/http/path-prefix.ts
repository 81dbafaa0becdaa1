/** A base URL with a path: the proxy in front takes the path away, and answers must have it again. */
import type { FastifyInstance } from 'fastify';

/** Pages have their addresses in double quotes, and no text has one that is not escaped. */
const ADDRESS = /(\s(?:href|src|action|formaction|poster)=")(?=\/(?!\/))/g;
const MARKDOWN_LINK = /(\]\()(?=\/(?!\/))/g;
const PATH = /^\/(?!\/)/;

/** @returns the path of the base URL, without its last slash; empty if it has none */
export function pathPrefixOf(baseUrl: string): string {
  return new URL(baseUrl).pathname.replace(/\/$/, '');
}

/** Pages, assets and redirects name paths of this host, so these begin with the path here. */
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

import { createHash } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** Ranges are respected except by `endless` and `drip`. */
export type HostAnswer =
  | 'whole'
  | 'cut'
  /** Neither length nor end. */
  | 'endless'
  | 'drip'
  /** A status, without the file. */
  | number;

export interface HostedFile {
  readonly bytes: Buffer;
  /** Absent: from the bytes. Empty: a cut file cannot be resumed. */
  readonly etag?: string;
  /** Where this host redirects to after it has checked the token. */
  readonly redirect?: string;
}

export interface ModelHost {
  readonly url: string;
  /** Keys are paths. If `commit` is set, a branch's path stands for the commit's. */
  readonly files: Map<string, HostedFile>;
  readonly answers: HostAnswer[];
  readonly requests: {
    readonly method: string;
    readonly path: string;
    readonly headers: IncomingMessage['headers'];
  }[];
  token: string | undefined;
  commit: string | undefined;
  onCut: () => void;
  close(): Promise<void>;
}

const DRIP_MS = 20;

export async function openModelHost(): Promise<ModelHost> {
  const server = createServer((request, response) => void answer(host, request, response));
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const host: ModelHost = {
    url: `http://127.0.0.1:${port}`,
    files: new Map(),
    answers: [],
    requests: [],
    token: undefined,
    commit: undefined,
    onCut: () => undefined,
    close: () =>
      new Promise<void>(resolve => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
  return host;
}

function answer(host: ModelHost, request: IncomingMessage, response: ServerResponse): void {
  const { method = '', url = '', headers } = request;
  const [path = ''] = url.split('?');
  host.requests.push({ method, path, headers });
  if (host.token !== undefined && headers.authorization !== `Bearer ${host.token}`) {
    response.writeHead(401).end('{"error":"Unauthorized"}');
    return;
  }
  const named = host.commit === undefined ? path : path.replace('/main/', `/${host.commit}/`);
  const file = host.files.get(named);
  if (file === undefined) {
    response.writeHead(404).end('Entry not found');
    return;
  }
  if (host.commit !== undefined) response.setHeader('x-repo-commit', host.commit);
  if (file.redirect !== undefined) {
    response.writeHead(302, { location: file.redirect }).flushHeaders();
    return;
  }
  const how = method === 'HEAD' ? 'whole' : (host.answers.shift() ?? 'whole');
  if (typeof how === 'number') response.writeHead(how).end();
  else if (how === 'endless') endless(response);
  else if (how === 'drip') drip(response, file.bytes);
  else send(file, how === 'cut' ? host.onCut : undefined, request, response);
}

function send(
  { bytes, etag = `"${createHash('md5').update(bytes).digest('hex')}"` }: HostedFile,
  onCut: (() => void) | undefined,
  { method, headers }: IncomingMessage,
  response: ServerResponse,
): void {
  if (etag !== '') response.setHeader('etag', etag);
  const [, from] = /^bytes=(\d+)-$/.exec(headers.range ?? '') ?? [];
  const start = from !== undefined && headers['if-range'] === etag ? Number(from) : 0;
  const part = bytes.subarray(start);
  const range = { 'content-range': `bytes ${start}-${bytes.length - 1}/${bytes.length}` };
  response.writeHead(start > 0 ? 206 : 200, {
    'content-length': part.length,
    ...(start > 0 && range),
  });
  if (method === 'HEAD') response.end();
  else if (onCut === undefined) response.end(part);
  else {
    response.write(part.subarray(0, Math.ceil(part.length / 2)), () => response.destroy());
    onCut();
  }
}

function endless(response: ServerResponse): void {
  const chunk = Buffer.alloc(65_536, 1);
  const more = (): void => {
    while (!response.destroyed && response.write(chunk));
  };
  response.writeHead(200).on('drain', more);
  more();
}

function drip(response: ServerResponse, bytes: Buffer): void {
  let at = 0;
  response.writeHead(200, { 'content-length': bytes.length });
  const timer = setInterval(() => response.write(bytes.subarray(at, ++at)), DRIP_MS);
  response.on('close', () => clearInterval(timer));
}

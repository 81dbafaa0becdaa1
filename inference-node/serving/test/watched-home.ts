/** What a process with ONNX Runtime leaves on disk and requests from the network. */
import { once } from 'node:events';
import { readdir, readFile, readlink } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import type { ExecutionContext } from 'ava';

export interface WatchedHome {
  /** An empty home, and the test's proxy for every host. */
  readonly env: Readonly<Record<string, string>>;
  /** First lines of requests to the proxy. */
  readonly requests: readonly string[];
  files(): Promise<string[]>;
}

export async function openWatchedHome(context: ExecutionContext): Promise<WatchedHome> {
  const home = await temporaryFolder(context);
  const requests: string[] = [];
  // Never answers, so that a caller keeps its socket.
  const proxy = createServer(socket => {
    context.teardown(() => socket.destroy());
    socket.on('error', () => undefined);
    socket.once('data', data => requests.push(data.toString().split('\r\n')[0] ?? ''));
  });
  proxy.listen(0, '127.0.0.1');
  await once(proxy, 'listening');
  context.teardown(() => proxy.close());
  const { port } = proxy.address() as AddressInfo;
  return {
    env: { HOME: home, TMPDIR: home, ALL_PROXY: `http://127.0.0.1:${port}` },
    requests,
    files: () => readdir(home, { recursive: true }),
  };
}

/** A read of the kernel's list may miss a socket, so a missing one is looked up twice. */
export async function networkSocketsOf(pid: number): Promise<string[]> {
  const first = await socketsNotLocal(pid);
  if (first.length === 0) return [];
  const again = await socketsNotLocal(pid);
  return first.filter(what => again.includes(what));
}

async function socketsNotLocal(pid: number): Promise<string[]> {
  const local = await readFile(`/proc/${pid}/net/unix`, 'utf8');
  const inodes = new Set(local.split('\n').map(line => line.split(/ +/)[6]));
  const found: string[] = [];
  for (const descriptor of await readdir(`/proc/${pid}/fd`)) {
    const what = await readlink(`/proc/${pid}/fd/${descriptor}`).catch(() => 'closed meanwhile');
    const inode = /^socket:\[(\d+)\]$/.exec(what)?.[1];
    if (inode !== undefined && !inodes.has(inode)) found.push(what);
  }
  return found;
}

/**
 * A child's IPC channel as a plain socket, to test a program whose parent is gone. Not
 * child_process's own: a parent that disconnects it spins forever at its end (Node 24.21,
 * Environment::CleanupHandles).
 */
import type { ChildProcess, StdioOptions } from 'node:child_process';
import type { Socket } from 'node:net';

/** The channel is descriptor 3. */
export const STDIO_WITH_CHANNEL: StdioOptions = ['ignore', 'pipe', 'pipe', 'pipe'];

export const CHANNEL_ENV = { NODE_CHANNEL_FD: '3' } as const;

/** The child sees its parent die. */
export function closeChannel(child: ChildProcess): void {
  (child.stdio[3] as Socket).destroy();
}

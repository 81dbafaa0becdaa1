/**
 * A child's IPC channel held as a plain socket, for tests of what a program does when its parent is
 * gone. Not the channel of child_process: a parent that disconnects it spins for ever when it ends
 * by itself (Node 24.21, Environment::CleanupHandles).
 */
import type { ChildProcess, StdioOptions } from 'node:child_process';
import type { Socket } from 'node:net';

/** Output on pipes, the channel on descriptor 3. */
export const STDIO_WITH_CHANNEL: StdioOptions = ['ignore', 'pipe', 'pipe', 'pipe'];

/** Makes the child take descriptor 3 for its channel to the parent. */
export const CHANNEL_ENV = { NODE_CHANNEL_FD: '3' } as const;

/** Closes the channel: for the child it is as if the parent had died. */
export function closeChannel(child: ChildProcess): void {
  (child.stdio[3] as Socket).destroy();
}

/**
 * The child's side: opens descriptor 3 and guarantees that the process ends with its parent. A guard
 * thread does it, because native code (a run, a codec) blocks the main thread for seconds and the
 * end of the socket would not be seen.
 */
import { Socket } from 'node:net';
import { Worker } from 'node:worker_threads';
import { type Frame, FrameChannel } from './frames.ts';

const GUARD_INTERVAL_MS = 500;

/** Runs in the guard thread. SIGKILL: process.exit would wait for, or crash in, native threads. */
const GUARD_PROGRAM = `
const parent = process.ppid;
setInterval(() => {
  if (process.ppid !== parent) process.kill(process.pid, 'SIGKILL');
}, ${GUARD_INTERVAL_MS});
`;

export function serveParent<Incoming>(
  onFrame: (frame: Frame<Incoming>) => void,
): FrameChannel<Incoming> {
  const guard = new Worker(GUARD_PROGRAM, {
    eval: true,
    resourceLimits: { maxOldGenerationSizeMb: 8, maxYoungGenerationSizeMb: 2, stackSizeMb: 1 },
  });
  guard.unref();
  const socket = new Socket({ fd: 3, readable: true, writable: true });
  socket.once('close', () => process.exit(0));
  socket.on('error', () => process.exit(0));
  return new FrameChannel(socket, onFrame);
}

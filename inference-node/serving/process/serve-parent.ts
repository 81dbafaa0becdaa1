/**
 * The child's side: opens descriptor 3, and ends the process with its parent. A guard thread
 * watches, because native code blocks the main thread for seconds.
 */
import { Worker } from 'node:worker_threads';
import type { BufferPool } from './buffer-pool.ts';
import { FrameChannel } from './frame-channel.ts';
import { type Frame, MalformedFrameError } from './frames.ts';

/** A check costs about a millisecond of processor time, in every child. */
const GUARD_INTERVAL_MS = 1000;

/** SIGKILL, since process.exit waits for native threads. Includes the group, if it leads one. */
const GUARD_PROGRAM = `
const { workerData: parentPid } = require('node:worker_threads');
function endWithParent() {
  if (process.ppid === parentPid) return;
  try {
    process.kill(-process.pid, 'SIGKILL');
  } finally {
    process.kill(process.pid, 'SIGKILL');
  }
}
setInterval(endWithParent, ${GUARD_INTERVAL_MS});
endWithParent();
`;

function endNow(): void {
  try {
    process.kill(-process.pid, 'SIGKILL');
  } finally {
    process.kill(process.pid, 'SIGKILL');
  }
}

export function serveParent<Incoming>(
  onFrame: (frame: Frame<Incoming>) => void,
  buffers?: Pick<BufferPool, 'take'>,
): FrameChannel<Incoming> {
  const parentPid = Number(process.argv.at(-1));
  if (!Number.isSafeInteger(parentPid) || parentPid < 1) {
    throw new Error('this program is started by the inference node, not by hand');
  }
  const guard = new Worker(GUARD_PROGRAM, {
    eval: true,
    workerData: parentPid,
    resourceLimits: {
      maxOldGenerationSizeMb: 8,
      maxYoungGenerationSizeMb: 2,
      stackSizeMb: 1,
      // Otherwise V8 reserves 512 MB, which count against RLIMIT_DATA.
      codeRangeSizeMb: 8,
    },
  });
  guard.unref();
  const channel = new FrameChannel({ fd: 3 }, onFrame, { buffers });
  const { socket } = channel;
  socket.once('close', endNow);
  socket.on('error', error => {
    // A reset is the parent's end. A malformed frame is a bug, and the parent logs it.
    if (!(error instanceof MalformedFrameError)) endNow();
    console.error(error.message);
    process.exit(1);
  });
  return channel;
}

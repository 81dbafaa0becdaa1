/**
 * Moves a connection to a socket that reads into memory of our choice (`onread`). Node gives a
 * child's pipes as sockets that read into 64 KB of new memory each time, and has no option for
 * others: it was a third of the processor time of a node's main process. The handle under a socket
 * and the option that takes one are Node's own and not documented; Node's version is pinned, and a
 * test holds that both are there.
 */
import { type OnReadOpts, Socket, type SocketConstructorOpts } from 'node:net';

interface Handled {
  /** Null: it is closed. */
  _handle?: object | null;
}

/** @param pipe nothing was read from it. It closes with the one that is returned, and after it. */
export function takeOver(pipe: Socket, onread: OnReadOpts): Socket {
  const handled = pipe as Handled;
  const { _handle: handle } = handled;
  if (handle === undefined) throw new Error(`no handle under a socket of Node ${process.version}`);
  handled._handle = null;
  const options = { handle, readable: true, writable: true, onread };
  const socket = new Socket(options as SocketConstructorOpts);
  // What waits for the ends of a child's pipes, or ends them, knows the first one alone.
  socket.once('close', () => pipe.destroy());
  pipe.once('close', () => socket.destroy());
  return socket;
}

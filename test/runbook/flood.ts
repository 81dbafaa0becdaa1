/** Connections of a stranger, many at once, from an address of its own. */
import { once } from 'node:events';
import net from 'node:net';

/** Loopback has more addresses than one: the flood's is none of the service's. */
export const STRANGER = '127.0.0.66';
/** Connected together: below what the system keeps for a port that is busy. */
export const BATCH = 200;

export class Flood {
  readonly #sockets = new Set<net.Socket>();

  /** Those that are open. */
  get size(): number {
    return this.#sockets.size;
  }

  /** Opens so many. Each says `text` and reads nothing; without one it is silent, until it is ended. */
  async open(port: number, count: number, text = ''): Promise<void> {
    for (let left = count; left > 0; left -= BATCH) {
      const batch = Array.from({ length: Math.min(BATCH, left) }, () => this.connect(port, text));
      await Promise.all(batch);
    }
  }

  async connect(port: number, text: string): Promise<void> {
    const socket = net.connect({ port, host: '127.0.0.1', localAddress: STRANGER });
    socket.on('error', () => undefined);
    this.#sockets.add(socket);
    socket.once('close', () => this.#sockets.delete(socket));
    await Promise.race([once(socket, 'connect'), once(socket, 'close')]);
    if (text === '') socket.resume();
    else socket.write(text);
  }

  end(): void {
    for (const socket of this.#sockets) socket.destroy();
  }
}

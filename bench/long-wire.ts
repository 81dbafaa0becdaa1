/** A long wire on loopback: a relay that holds every byte back for some milliseconds each way. */
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';

export class LongWire {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  readonly #delayMs: number;
  #underWayMaxBytes = 0;

  private constructor(to: number, delayMs: number) {
    this.#delayMs = delayMs;
    this.#server = createServer(client => {
      const upstream = connect(to, '127.0.0.1');
      this.#carry(client, upstream);
      this.#carry(upstream, client);
    });
  }

  /** @param to a port of loopback; @param delayMs each way */
  static async open(to: number, delayMs: number): Promise<LongWire> {
    const wire = new LongWire(to, delayMs);
    await new Promise<void>(resolve => wire.#server.listen(0, '127.0.0.1', resolve));
    return wire;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** Bytes on the way, the most there were at once in one direction of a connection. */
  get underWayMaxBytes(): number {
    return this.#underWayMaxBytes;
  }

  close(): void {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
  }

  /**
   * Hands on what comes, each piece `delayMs` after it came, however many are under way: a long
   * wire, not a slow one.
   */
  #carry(from: Socket, to: Socket): void {
    const wire: { readonly piece: Buffer; readonly dueMs: number }[] = [];
    const deliver = () => {
      let next = wire[0];
      for (; next !== undefined && next.dueMs <= performance.now(); next = wire[0]) {
        to.write(next.piece);
        wire.shift();
      }
      if (next !== undefined) setTimeout(deliver, Math.max(0, next.dueMs - performance.now()));
    };
    this.#sockets.add(from.setNoDelay(true));
    from.on('data', piece => {
      if (this.#delayMs === 0) {
        to.write(piece);
        return;
      }
      const idle = wire.length === 0;
      wire.push({ piece, dueMs: performance.now() + this.#delayMs });
      const underWay = wire.reduce((sum, { piece: { length } }) => sum + length, 0);
      this.#underWayMaxBytes = Math.max(this.#underWayMaxBytes, underWay);
      if (idle) setTimeout(deliver, this.#delayMs);
    });
    from.on('error', () => to.destroy());
    from.on('close', () => {
      this.#sockets.delete(from);
      to.destroy();
    });
  }
}

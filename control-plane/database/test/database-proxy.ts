/** For MySQL; it disappears, loses answers, or leads to another server. */
import { once } from 'node:events';
import net from 'node:net';

export class DatabaseProxy {
  #target: net.NetConnectOpts;
  readonly #sockets = new Set<net.Socket>();
  readonly #url: URL;
  #server: net.Server | undefined;
  #port = 0;
  #silent = false;
  taken = 0;
  rewrite: (data: Buffer) => Buffer = data => data;
  #change: { at: number; loss: 'unheard' | 'unanswered'; seen: number } | undefined;

  constructor(databaseUrl: string) {
    this.#url = new URL(databaseUrl);
    this.#target = connectOptions(databaseUrl);
  }

  /** Redirects new connections only. */
  leadTo(databaseUrl: string): void {
    this.#target = connectOptions(databaseUrl);
  }

  get url(): string {
    const url = new URL(this.#url);
    url.hostname = '127.0.0.1';
    url.port = String(this.#port);
    url.searchParams.delete('socket');
    return url.href;
  }

  async open(): Promise<void> {
    this.#server = net
      .createServer(client => this.#forward(client))
      .listen(this.#port, '127.0.0.1');
    await once(this.#server, 'listening');
    this.#port = (this.#server.address() as net.AddressInfo).port;
  }

  async close(): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    for (const socket of this.#sockets) socket.destroy();
    if (server === undefined) return;
    server.close();
    await once(server, 'close');
  }

  /** Breaks the connection at the `at`-th statement or commit from now on. */
  loseChange(at: number, loss: 'unheard' | 'unanswered'): void {
    this.#change = { at, loss, seen: 0 };
  }

  get changeLost(): boolean {
    return this.#change !== undefined && this.#change.seen >= this.#change.at;
  }

  /** Forwards statements, but no answers. */
  setSilent(silent: boolean): void {
    this.#silent = silent;
  }

  #forward(client: net.Socket): void {
    const server = net.connect(this.#target);
    this.taken += 1;
    let losing = false;
    for (const [socket, other] of [
      [client, server],
      [server, client],
    ] as const) {
      this.#sockets.add(socket);
      // The other side sees a closed connection.
      socket.on('error', () => other.destroy());
      socket.on('close', () => {
        this.#sockets.delete(socket);
        other.destroy();
      });
    }
    client.on('data', (data: Buffer) => {
      const change = this.#change;
      if (change !== undefined && isChange(data) && ++change.seen === change.at) {
        if (change.loss === 'unheard') {
          client.destroy();
          return;
        }
        losing = true;
      }
      server.write(this.rewrite(data));
    });
    server.on('data', (data: Buffer) => {
      if (losing) client.destroy();
      else if (!this.#silent) client.write(data);
    });
  }
}

function connectOptions(databaseUrl: string): net.NetConnectOpts {
  const url = new URL(databaseUrl);
  const socket = url.searchParams.get('socket');
  return socket === null
    ? { host: url.hostname, port: Number(url.port || 3306) }
    : { path: socket };
}

/** A COM_QUERY, possibly with query attributes. */
function isChange(packet: Buffer): boolean {
  const text = packet.toString('latin1', 5, 40);
  return packet[4] === 3 && /^.{0,2}(?:insert into|update|delete from|commit)\b/s.test(text);
}

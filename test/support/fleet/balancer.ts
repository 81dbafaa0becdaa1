import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { at } from '../at.ts';

/** A load balancer over TCP: one address for all replicas; it skips those that do not listen. */
export class Balancer {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  #ports: readonly number[] = [];
  #next = 0;

  constructor() {
    this.#server = createServer(client => this.#connect(client, this.#ports.length));
  }

  async listen(): Promise<string> {
    await new Promise<void>(resolve => this.#server.listen(0, '127.0.0.1', resolve));
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  serve(ports: readonly number[]): void {
    this.#ports = ports;
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise(resolve => this.#server.close(resolve));
  }

  #connect(client: Socket, left: number): void {
    const port = at(this.#ports, this.#next++ % this.#ports.length);
    const upstream = connect(port, '127.0.0.1');
    let open = false;
    for (const socket of [client, upstream]) this.#sockets.add(socket);
    client.on('error', () => upstream.destroy());
    client.on('close', () => this.#sockets.delete(client));
    upstream.on('close', () => this.#sockets.delete(upstream));
    upstream.once('connect', () => {
      open = true;
      client.pipe(upstream).pipe(client);
    });
    upstream.on('error', () => {
      if (open || left <= 1) client.destroy();
      else this.#connect(client, left - 1);
    });
  }
}

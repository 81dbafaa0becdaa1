/** One address in front of a cluster. */
import { once } from 'node:events';
import net from 'node:net';
import { at } from '../at.ts';

/** Ports to try, the best first. */
export type Route = () => readonly number[] | Promise<readonly number[]>;

export class TcpProxy {
  readonly #server: net.Server;
  readonly #sockets = new Set<net.Socket>();
  readonly #route: Route;

  private constructor(route: Route) {
    this.#route = route;
    this.#server = net.createServer(client => this.#lead(client));
  }

  static async open(route: Route): Promise<TcpProxy> {
    const proxy = new TcpProxy(route);
    proxy.#server.listen(0, '127.0.0.1');
    await once(proxy.#server, 'listening');
    return proxy;
  }

  get port(): number {
    return (this.#server.address() as net.AddressInfo).port;
  }

  cut(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  async close(): Promise<void> {
    this.cut();
    this.#server.close();
    await once(this.#server, 'close');
  }

  async #lead(client: net.Socket): Promise<void> {
    this.#sockets.add(client);
    client.on('close', () => this.#sockets.delete(client));
    // The other side sees only a close.
    client.on('error', () => client.destroy());
    const ports = await Promise.resolve(this.#route()).catch(() => []);
    for (const port of ports) {
      const server = await connectTo(port);
      if (server === undefined) continue;
      this.#join(client, server);
      return;
    }
    client.destroy();
  }

  #join(client: net.Socket, server: net.Socket): void {
    this.#sockets.add(server);
    server.on('close', () => {
      this.#sockets.delete(server);
      client.destroy();
    });
    server.on('error', () => server.destroy());
    client.on('close', () => server.destroy());
    if (client.destroyed) server.destroy();
    else client.pipe(server).pipe(client);
  }
}

/** Does not check whether members answer. */
export function roundRobin(ports: readonly number[]): Route {
  let next = 0;
  return () => {
    const first = next++;
    return ports.map((_, index) => at(ports, (first + index) % ports.length));
  };
}

/** Undefined: nobody listens. */
function connectTo(port: number): Promise<net.Socket | undefined> {
  const socket = net.connect(port, '127.0.0.1');
  return new Promise(resolve => {
    socket.once('connect', () => resolve(socket));
    socket.once('error', () => resolve(undefined));
  });
}

/** Finds ports for programs that start soon, and restart on the same ones. */
import { randomInt } from 'node:crypto';
import { createServer, type Server } from 'node:net';

const LOOPBACK = '127.0.0.1';
/**
 * These ports are below the system's ephemeral ones (from 32768 on Linux), which another program
 * might get before the intended one listens.
 */
const PORT_MIN = 20_000;
const PORT_MAX = 32_000;
/** Attempts at used ports. */
const TRIES_MAX = 100;

/** A tuple if `Count` is a literal. */
type PortTuple<Count extends number, Ports extends number[] = []> = number extends Count
  ? number[]
  : Ports['length'] extends Count
    ? Ports
    : PortTuple<Count, [...Ports, number]>;

export async function findFreePorts<const Count extends number>(
  count: Count,
): Promise<PortTuple<Count>> {
  const servers: Server[] = [];
  try {
    // The servers stay open until all ports are found, so that none is found twice.
    for (let tries = 0; servers.length < count; tries++) {
      if (tries > TRIES_MAX + count) throw new Error(`no ${count} ports are free`);
      const server = await listenAt(randomInt(PORT_MIN, PORT_MAX));
      if (server !== undefined) servers.push(server);
    }
    const ports = servers.map(server => (server.address() as { port: number }).port);
    return ports as PortTuple<Count>;
  } finally {
    await Promise.all(servers.map(server => new Promise(resolve => server.close(resolve))));
  }
}

/** @returns undefined: the port is in use or not allowed */
function listenAt(port: number): Promise<Server | undefined> {
  const server = createServer();
  return new Promise(resolve => {
    server.once('error', () => resolve(undefined));
    server.listen(port, LOOPBACK, () => resolve(server));
  });
}

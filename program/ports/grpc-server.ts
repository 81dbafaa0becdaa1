/** Opens and closes the port of a gRPC server. */
import { promisify } from 'node:util';
import type { Server, ServerCredentials } from '@grpc/grpc-js';

/**
 * @param port 0: one that is free
 * @throws Error with code EADDRINUSE, or its text, where the port is taken
 */
export function bindGrpcServer(
  server: Server,
  { host, port, credentials }: { host: string; port: number; credentials: ServerCredentials },
): Promise<number> {
  const address = host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
  return promisify(server.bindAsync.bind(server))(address, credentials);
}

/** Closes the listener at once, and the connections when their calls are over or `graceMs` passed. */
export function shutDownGrpcServer(server: Server, graceMs: number): Promise<void> {
  return new Promise(resolve => {
    const timer = setTimeout(() => server.forceShutdown(), graceMs);
    server.tryShutdown(() => {
      clearTimeout(timer);
      resolve();
    });
  });
}

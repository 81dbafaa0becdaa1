import { promisify } from 'node:util';
import type { Server, ServerCredentials } from '@grpc/grpc-js';

/** @param port 0: any free port @throws Error with EADDRINUSE as its code or in its text */
export function bindGrpcServer(
  server: Server,
  { host, port, credentials }: { host: string; port: number; credentials: ServerCredentials },
): Promise<number> {
  const address = host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
  return promisify(server.bindAsync.bind(server))(address, credentials);
}

/** Stops listening at once, and closes connections after their calls or after `graceMs`. */
export function shutDownGrpcServer(server: Server, graceMs: number): Promise<void> {
  return new Promise(resolve => {
    const timer = setTimeout(() => server.forceShutdown(), graceMs);
    server.tryShutdown(() => {
      clearTimeout(timer);
      resolve();
    });
  });
}

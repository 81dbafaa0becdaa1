/** What a package adds to the public port, next to the core's own routes. */
import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { ErrorWriter } from './answers/error-handler.ts';
import type { HeaderChecks } from './checks/header-checks.ts';
import type { Connections } from './connections/connections.ts';

export interface HttpInterface {
  /** Adds its routes and hooks, once, after the core's routes of jobs and accounts. */
  register(app: FastifyInstance, context: HttpContext): void;
  /** Who writes the errors of this request; undefined, as where absent: not this interface. */
  readonly errorWriterOf?: (request: FastifyRequest, path: string) => ErrorWriter | undefined;
  /** How long a route of it may hold a request before its answer begins. */
  readonly longestWaitMs?: number;
}

export interface HttpContext {
  readonly connections: Connections;
  /** Those of the core's own routes. */
  readonly checks: HeaderChecks;
}

/** What a package adds to the public port, next to the core's own routes. */
import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { ErrorWriter } from '../../http/answers.ts';
import type { Connections } from '../../http/connections.ts';
import type { HeaderChecks } from './header-checks.ts';

export interface HttpInterface {
  /** Adds its routes and hooks, once, after the core's routes of jobs and accounts. */
  register(app: FastifyInstance, context: HttpContext): void;
  /** Who writes the errors of this request; undefined, as where absent: not this interface. */
  readonly errorWriterOf?: (request: FastifyRequest, path: string) => ErrorWriter | undefined;
  /** How long a route of it may hold a request before its answer begins. */
  readonly longestWaitMs?: number;
  /** Absent: the documents are served as they are, for programs. */
  readonly documentPages?: DocumentPages;
}

/** The documents of the service, for people who read them in a browser. */
export interface DocumentPages {
  readonly headers: Readonly<Record<string, string>>;
  /** Of the OpenAPI document. */
  renderInterface(
    document: unknown,
    paths: { readonly documentPath: string; readonly errorDocsPath: string },
  ): string;
  /** Of docs/errors.md. */
  renderErrors(markdown: string, paths: { readonly docsPath: string }): string;
}

export interface HttpContext {
  readonly connections: Connections;
  /** Those of the core's own routes. */
  readonly checks: HeaderChecks;
}

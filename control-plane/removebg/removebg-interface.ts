import type { HttpInterface } from '@matting/core/http/public-app.ts';
import type { CoreServices } from '@matting/core/package.ts';
import type { OutgoingPolicy } from '@matting/http/outgoing/outgoing-url.ts';
import { isRemovebgRequest, writeRemovebgError } from './removebg-errors.ts';
import { allowOrigins, registerRemovebgRoutes } from './removebg-routes.ts';

interface RemovebgOptions {
  readonly baseUrl: string;
  readonly version: string;
  readonly waitMs: number;
  readonly origins: readonly string[];
  readonly policy: OutgoingPolicy;
}

export function removebgInterface(services: CoreServices, options: RemovebgOptions): HttpInterface {
  return {
    register(app, context) {
      allowOrigins(app, options.origins);
      registerRemovebgRoutes(app, services, context, options);
    },
    errorWriterOf: (_request, path) => (isRemovebgRequest(path) ? writeRemovebgError : undefined),
    longestWaitMs: options.waitMs,
  };
}

/** The interface of remove.bg, as the public port is given it. */

import type { HttpInterface } from '@matting/core/http/public-app.ts';
import type { CoreServices } from '@matting/core/package.ts';
import type { OutgoingPolicy } from '@matting/http/outgoing/outgoing-url.ts';
import { isRemovebgRequest, writeRemovebgError } from './removebg-errors.ts';
import { allowOrigins, registerRemovebgRoutes } from './removebg-routes.ts';
import type { RemovebgSize } from './removebg-values.ts';

interface RemovebgOptions {
  readonly baseUrl: string;
  readonly version: string;
  /** A request waits this long for its picture. */
  readonly waitMs: number;
  /** Pages of these origins may call it; none: no page may. */
  readonly origins: readonly string[];
  /** Requests that name no size get this one. */
  readonly defaultSize: RemovebgSize;
  readonly policy: OutgoingPolicy;
}

export function removebgInterface(
  services: CoreServices,
  { policy, defaultSize: removebgDefaultSize, ...options }: RemovebgOptions,
): HttpInterface {
  return {
    register(app, context) {
      allowOrigins(app, options.origins);
      registerRemovebgRoutes(app, services, context, {
        ...options,
        policy: { ...policy, removebgDefaultSize },
      });
    },
    errorWriterOf: (_request, path) => (isRemovebgRequest(path) ? writeRemovebgError : undefined),
    longestWaitMs: options.waitMs,
  };
}

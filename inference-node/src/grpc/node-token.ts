/**
 * The node token: `authorization: Bearer <token>` on every call but health checks, which probes
 * make without a secret and which tell nothing but whether the node serves.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import {
  Metadata,
  ServerInterceptingCall,
  type ServerInterceptor,
  ServerListenerBuilder,
} from '@grpc/grpc-js';
import { ContractError } from '#contract/errors.ts';
import { toStatus } from '#contract/grpc-status.ts';

const OPEN_PATHS_PREFIX = '/grpc.health.v1.Health/';

/** Metadata of a call to a node or to the registry of a control plane. */
export function tokenMetadata(token: string | undefined): Metadata {
  const metadata = new Metadata();
  if (token !== undefined) metadata.set('authorization', `Bearer ${token}`);
  return metadata;
}

/** Ends a call without the token UNAUTHENTICATED before its handler sees it. */
export function createTokenInterceptor(token: string): ServerInterceptor {
  const expected = digest(`Bearer ${token}`);
  return (method, call) =>
    new ServerInterceptingCall(call, {
      start: next => {
        const listener = new ServerListenerBuilder()
          .withOnReceiveMetadata((metadata, forward) => {
            if (method.path.startsWith(OPEN_PATHS_PREFIX) || carriesToken(metadata, expected)) {
              forward(metadata);
              return;
            }
            const error = new ContractError(
              'INVALID_NODE_TOKEN',
              'the node token is missing or wrong',
            );
            call.sendStatus(toStatus(error));
          })
          .build();
        next(listener);
      },
    });
}

function carriesToken(metadata: Metadata, expected: Buffer): boolean {
  const given = metadata.get('authorization');
  // Digests are of one length, so the comparison tells nothing about the token's.
  return given.length === 1 && timingSafeEqual(digest(String(given[0])), expected);
}

function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}

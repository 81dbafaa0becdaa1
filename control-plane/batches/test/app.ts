/** The HTTP application with batches. A test runs their loop. */
import { testApps } from '@matting/core/test/support/test-app.ts';
import { batches } from '../batches.ts';
import { type Stores, withBatches } from './fixtures.ts';

export const { openTestApp, useTestApp } = testApps<Stores>([batches], (stores, database) => ({
  ...stores,
  ...withBatches(database, stores),
}));

/** The HTTP application with this interface. */
import { testApps } from '@matting/core/test/support/test-app.ts';
import { removebg } from '../removebg.ts';

export const { openTestApp, useTestApp } = testApps([removebg], stores => stores);

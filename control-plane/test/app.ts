/** The HTTP application of the program: the core's with all packages. */
import {
  openTestApp as openCoreApp,
  type TestApp,
  type TestAppOptions,
  useTestApp as useCoreApp,
} from '../core/test/support/test-app.ts';
import { TEST_PACKAGES } from './packages.ts';

export function openTestApp(
  options: TestAppOptions = {},
  ...rest: Parameters<typeof openCoreApp> extends [unknown?, ...infer Rest] ? Rest : never
): Promise<TestApp> {
  return openCoreApp({ packages: TEST_PACKAGES, ...options }, ...rest);
}

export function useTestApp(...[test, options, then]: Parameters<typeof useCoreApp>): TestApp {
  const given = () => (typeof options === 'function' ? options() : options);
  return useCoreApp(test, () => ({ packages: TEST_PACKAGES, ...given() }), then);
}

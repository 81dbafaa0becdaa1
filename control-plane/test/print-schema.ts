/**
 * Prints the tables that this checkout's migrations make: equal prints are equal tables.
 *
 * sh bin/node24 control-plane/test/print-schema.ts > shape.txt
 */
import { readSchemaShape } from '@matting/core/test/schema-shape.ts';
import { createTestDatabase, DIALECTS } from '@matting/test-support/database.ts';
import { series } from './fixtures.ts';

for (const dialect of DIALECTS) {
  const test = await createTestDatabase(dialect, { series });
  const { columns, indexes, checks } = await readSchemaShape(await test.open());
  const lines = [
    ...[...columns].map(([name, { type }]) => `${name} ${type}`),
    ...[...indexes, ...checks].map(([name, text]) => `${name} ${text.replace(/\s+/g, ' ')}`),
  ];
  for (const line of lines.sort()) console.log(`${dialect} ${line}`);
  await test.close();
}

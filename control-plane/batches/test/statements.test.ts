import { countRows } from '@matting/core/test/counting-rows.ts';
import ava from 'ava';
import { BATCH_SUITE } from './batch-suite.ts';

await countRows(ava.serial, BATCH_SUITE);

package dev.reprieve.bench;

import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.transforms.Transformation;

/** Makes the JSON bytes that a mirror connector carries a value that the transformations of Kafka Connect understand. */
public final class ParseJson<R extends ConnectRecord<R>> implements Transformation<R> {
  private final JsonConverter json = new JsonConverter();

  @Override
  public void configure(Map<String, ?> settings) {
    json.configure(Map.of("schemas.enable", "false"), false);
  }

  @Override
  public R apply(R record) {
    if (record.value() == null) {
      return record;
    }
    SchemaAndValue read = json.toConnectData(record.topic(), (byte[]) record.value());
    return record.newRecord(record.topic(), record.kafkaPartition(), record.keySchema(), record.key(), read.schema(), read.value(),
        record.timestamp(), record.headers());
  }

  @Override
  public ConfigDef config() {
    return new ConfigDef();
  }

  @Override
  public void close() {}
}

"""A catalog in a database that does not read again what it has read or written itself."""

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate


class RememberingCatalog(SqlCatalog):
    """The database says in which file the newest version of a table stands; a file of that name
    always says the same. Remembers one, as each of our tables has a catalog of its own."""

    _remembered: tuple[str, TableMetadata] | None = None

    def commit_table(
        self,
        table: Table,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> CommitTableResponse:
        response = super().commit_table(table, requirements, updates)
        self._remembered = response.metadata_location, response.metadata
        return response

    def _convert_orm_to_iceberg(self, orm_table: IcebergTables) -> Table:
        """Private to pyiceberg: should another version not call it, files are only read again."""
        location, remembered = orm_table.metadata_location, self._remembered
        if location is None or remembered is None or remembered[0] != location:
            found = super()._convert_orm_to_iceberg(orm_table)
            self._remembered = found.metadata_location, found.metadata
            return found
        metadata = remembered[1]
        return Table(
            (orm_table.table_namespace, orm_table.table_name),
            metadata,
            location,
            self._load_file_io(metadata.properties, location),
            self,
        )


def remembering(catalog: Catalog) -> Catalog:
    """In the place of one that pyiceberg has made of settings and of its own files of them."""
    catalog.close()
    return RememberingCatalog(catalog.name, **catalog.properties)
